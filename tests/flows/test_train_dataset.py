"""A training with a real Prefect server: the flow run, its tags, the artifact of its metrics."""

import os
from pathlib import Path

import pytest

from pairwright.tasks.training.runs import Run
from tests.fixtures.families_of_models import write_qwen2_vl
from tests.fixtures.prefect_server import PrefectServer
from tests.flows.test_train_model import FAST, words_of, write_dataset


@pytest.mark.slow
def test_a_training_shows_up_in_prefect(prefect: PrefectServer, tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "dogs")
    model = write_qwen2_vl(tmp_path / "qwen")
    words = ["train", str(dataset), "--objective", "dpo", "--model", str(model), *words_of(FAST)]
    done = prefect.run("pairwright", *words, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    run = Run(dataset / "runs/dpo")
    assert f"Trained, 4 steps: {run.model}" in done.stdout
    tagged = {"tags": {"all_": ["dogs", "dpo"]}}
    (flow_run,) = prefect.ask("flow_runs", flow_runs=tagged)
    assert flow_run["state_type"] == "COMPLETED"
    (artifact,) = prefect.ask("artifacts", artifacts={"key": {"any_": ["train-dogs-dpo"]}})
    assert "margin" in str(artifact["data"])

    wrong = prefect.run("pairwright", *words, "--set", "dpo.beta=0.7")
    assert wrong.returncode == 2
    assert "error: " in wrong.stderr
    assert "dpo.beta was 0.1, is 0.7" in wrong.stderr


def test_without_a_server_nothing_of_prefect_is_loaded(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys, pairwright.flows.train_model, pairwright.flows.show_training\n"
        "import pairwright.tasks.training.train_model\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'prefect'])"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    done = subprocess.run([sys.executable, "-c", code], check=True, env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"
