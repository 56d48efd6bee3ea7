"""Exports, trainings and evaluations as flow runs of a real Prefect server: states, tags, logs and
tables."""

import json

import pytest

from pairwright.tasks.training.runs import Run
from tests.fixtures.benchmarks import write_folder
from tests.fixtures.chat_server import chat_server
from tests.fixtures.command import words_of
from tests.fixtures.dogs_to_train import FAST, write_dataset
from tests.fixtures.papers import PAPERS

pytestmark = pytest.mark.slow
MODEL = """
import sys
from pairwright.flows.prefect.run_in_prefect import evaluate_model
evaluate_model("tiny", "nlvr2", data=sys.argv[1], to=sys.argv[2], server=sys.argv[3])
"""
EXPORT = """
import sys
from pairwright.flows.prefect.run_in_prefect import export_dataset
export_dataset(sys.argv[1], sys.argv[2], form="trl")
"""


def question(number, answer):
    return {
        "image": ["a.png", "b.png"],
        "text": f'Is the statement "{number} dogs" True or False?',
        "answer": answer,
        "question_id": number,
    }


def test_an_export_shows_up_in_prefect(prefect, rendered, tmp_path):
    done = prefect.run("python", "-c", EXPORT, rendered, tmp_path / "export")
    assert done.returncode == 0, done.stderr
    (run,) = prefect.flow_runs(f"export-{rendered}")
    assert (run["state_type"], set(run["tags"])) == ("COMPLETED", {rendered.name, "trl"})
    assert list((tmp_path / "export").iterdir())


def test_scores_of_a_model_are_a_table_of_the_run(prefect, tmp_path):
    lines = {"NLVR2.jsonl": [question(0, "True"), question(1, "False")]}
    folder = write_folder(tmp_path, images=["a.png", "b.png"], files={}, lines=lines)
    with chat_server(lambda _: "True") as server:
        done = prefect.run("python", "-c", MODEL, folder, tmp_path / "scores.json", server.url)
    assert done.returncode == 0, done.stderr
    (run,) = prefect.flow_runs("evaluate-tiny-on-nlvr2")
    names = ("accuracy", "consistency", "accuracy (exact)", "consistency (exact)")
    message = ", ".join(f"{name} 0.500" for name in names)
    assert (run["state_type"], run["state"]["message"]) == ("COMPLETED", message)
    (artifact,) = prefect.ask("artifacts", artifacts={"key": {"any_": ["scores-nlvr2"]}})
    assert "2 of 2 items, 2 questions" in artifact["description"]
    assert [row["value"] for row in json.loads(artifact["data"])] == [0.5] * 4


def test_a_training_shows_up_in_prefect(prefect, qwen, tmp_path):
    dataset = write_dataset(tmp_path / "dogs")
    words = ["train", str(dataset), "--objective", "dpo", "--model", str(qwen), *words_of(FAST)]
    done = prefect.run("pairwright", *words, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    run = Run(dataset / "runs/dpo")
    assert f"4 steps: {run.model}" in done.stdout
    (flow_run,) = prefect.ask("flow_runs", flow_runs={"tags": {"all_": ["dogs", "dpo"]}})
    assert flow_run["state_type"] == "COMPLETED"
    assert prefect.our_lines(flow_run), "its steps are in Prefect's log"

    wrong = prefect.run("pairwright", *words, "--set", "dpo.beta=0.7")
    assert wrong.returncode == 2
    assert "error: " in wrong.stderr
    assert "dpo.beta was 0.1, is 0.7" in wrong.stderr


def test_each_step_of_a_reproduction_is_a_task_run(prefect, tmp_path):
    data, out = tmp_path / "data", tmp_path / "out"
    PAPERS["adpo"](data)
    words = ["reproduce", "adpo", "--data", data, "--out", out, "--arms", "base,sft"]
    done = prefect.run("pairwright", *map(str, words), OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    assert "Table 1: Image-Editing-Request" in done.stdout
    (flow_run,) = prefect.ask("flow_runs", flow_runs={"tags": {"all_": ["adpo"]}})
    assert (flow_run["state_type"], flow_run["name"]) == ("COMPLETED", "reproduce-adpo")
    tasks = prefect.ask("task_runs", flow_runs={"id": {"any_": [flow_run["id"]]}})
    names = {run["name"].rpartition("-")[0] for run in tasks}
    steps = {"train sft on {0}", "build {0}", "evaluate base on {0}", "evaluate sft on {0}"}
    assert names == {step.format("image-editing-request") for step in steps}
    key = "adpo-image-editing-request"
    (artifact,) = prefect.ask("artifacts", artifacts={"key": {"any_": [key]}})
    assert [row["B4 (paper)"] for row in json.loads(artifact["data"])] == ["3.8", "13.1"]
