"""Schedules: what is refused, what the forms show, and the deployments that a real server gets."""

import json
import os
import shutil
import signal
from pathlib import Path

import httpx
import pytest
import yaml

from pairwright.flows.cli import keep_quiet
from pairwright.flows.pipeline.stages import GROUPS
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.open_tables import hold
from tests.fixtures.command import run
from tests.fixtures.pictures import write_pictures
from tests.fixtures.prefect_server import listening
from tests.fixtures.terminal import wait_for

DOCKER = Path(__file__).parents[3] / "docker"
NIGHTLY = ("--cron", "0 2 * * *")
UPDATE = """
import sys
from pairwright.flows.prefect.build_dataset import update_dataset
update_dataset(sys.argv[1])
"""
SAVE_WEBHOOK = """
import sys
from prefect.blocks.webhook import Webhook
print(Webhook(url=sys.argv[1]).save("dead", overwrite=True))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("album")
    photographs = write_pictures(folder / "photographs", "abcd")
    words = ("--until", "embeddings", "--set", "run.workers=1")
    assert run("build", photographs, "--out", folder / "album", *words) == 0
    return folder / "album"


@pytest.fixture
def album(built, tmp_path):
    return shutil.copytree(built, tmp_path / "album")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ALBUM", "--cron", "every night"], "--cron every night: "),
        (["ALBUM"], "--cron is missing"),
        (["ALBUM", *NIGHTLY, "--timezone", "Mars/Olympus"], "--timezone Mars/Olympus: "),
        (["NOTHING", *NIGHTLY], "`pairwright build"),
        (["ALBUM", *NIGHTLY], "prefect server start --host 127.0.0.1"),
    ],
)
def test_what_is_no_schedule_is_refused_by_name(built, tmp_path, capsys, words, message):
    places = {"ALBUM": built, "NOTHING": tmp_path / "nothing"}
    assert run("schedule", *(places.get(word, word) for word in words)) == 2
    assert message in capsys.readouterr().err


@pytest.fixture(scope="module")
def forms():
    """Return the forms that Prefect makes of the parameters of our flows, by flow."""
    from prefect.utilities.callables import parameter_schema

    from pairwright.flows.prefect import build_dataset, run_in_prefect

    flows = (
        build_dataset.build_dataset,
        build_dataset.resume_dataset,
        build_dataset.update_dataset,
        run_in_prefect.export_dataset,
        run_in_prefect.train_model,
        run_in_prefect.evaluate_model,
    )
    return {flow.name: parameter_schema(flow) for flow in flows}


def test_every_parameter_is_explained(forms):
    assert len(forms) == 6
    for form in forms.values():
        assert all(field.get("description") for field in form.properties.values())


def test_a_build_needs_only_a_place(forms):
    form = forms["build-dataset"]
    assert form.required == ["out"]
    assert form.properties["until"]["default"] == ""
    assert {"laptop", "scenes"} <= set(form.properties["profile"]["examples"])
    assert form.properties["limit"]["anyOf"][0] == {"minimum": 1, "type": "integer"}


@pytest.mark.parametrize(
    ("flow", "field", "choices"),
    [
        ("build-dataset", "until", {"", "pairs", "preferences", *GROUPS}),
        ("resume-dataset", "stage", {"", "pairs", "preferences", *GROUPS}),
        ("train-model", "objective", {"adpo"}),
        ("export-dataset", "form", {"hf", "trl"}),
        ("evaluate-model", "benchmark", {"scenes"}),
    ],
)
def test_choices_are_offered(forms, flow, field, choices):
    assert choices <= set(forms[flow].properties[field]["enum"])


def test_a_build_and_a_resumption_offer_the_same_steps(forms):
    until = forms["build-dataset"].properties["until"]
    assert forms["resume-dataset"].properties["stage"]["enum"] == until["enum"]


@pytest.fixture
def undecided(monkeypatch):
    for name in ("DO_NOT_TRACK", "PREFECT_SERVER_ANALYTICS_ENABLED"):
        monkeypatch.setenv(name, "")  # so that it is put back as it was
        monkeypatch.delenv(name)


def test_telemetry_is_off(undecided):
    keep_quiet()
    assert os.environ["DO_NOT_TRACK"] == "1"
    assert os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"


def test_telemetry_is_as_the_user_decided(undecided, monkeypatch):
    monkeypatch.setenv("PREFECT_SERVER_ANALYTICS_ENABLED", "true")
    keep_quiet()
    assert "DO_NOT_TRACK" not in os.environ
    assert os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] == "true"


def deployment_of(prefect, album):
    own = {"tags": {"all_": ["album"]}}
    deployments = prefect.ask("deployments", deployments=own)
    (deployment,) = (one for one in deployments if one["parameters"]["dataset"] == str(album))
    return deployment


def schedules_of(deployment):
    return [(one["schedule"]["cron"], one["active"]) for one in deployment["schedules"]]


@pytest.fixture
def schedule(prefect, album):
    """Return a function that schedules the album, and returns its deployment and the output."""

    def schedule(*words, **environment):
        done = prefect.run("pairwright", "schedule", album, *words, **environment)
        assert done.returncode == 0, done.stderr
        return deployment_of(prefect, album), done.stdout

    return schedule


@pytest.mark.slow
def test_a_schedule_is_applied_changed_and_paused(schedule, album):
    deployment, output = schedule(*NIGHTLY, "--timezone", "Europe/Zurich")
    assert "prefect worker start --pool pairwright --type process" in output
    assert deployment["entrypoint"] == "pairwright.flows.prefect.build_dataset.update_dataset"
    assert deployment["parameters"] == {"dataset": str(album)}
    assert deployment["work_pool_name"] == "pairwright"
    assert schedules_of(deployment) == [("0 2 * * *", True)]
    assert deployment["schedules"][0]["schedule"]["timezone"] == "Europe/Zurich"
    pool = {"PREFECT_DEPLOYMENTS_DEFAULT_WORK_POOL_NAME": "pairwright-gpu"}
    changed, _ = schedule("--cron", "0 3 * * *", "--pause", **pool)
    assert (changed["id"], changed["work_pool_name"]) == (deployment["id"], "pairwright-gpu")
    assert schedules_of(changed) == [("0 3 * * *", False)]
    schedule("--cron", "0 4 * * *")
    paused, _ = schedule("--pause")
    assert schedules_of(paused) == [("0 4 * * *", False)]


@pytest.mark.slow
def test_an_update_waits_for_none(prefect, album):
    with hold(Folder(str(album)), "schedule"):
        skipped = prefect.run("python", "-c", UPDATE, album)
    completed = prefect.run("python", "-c", UPDATE, album)
    assert skipped.returncode == 0, skipped.stderr
    assert completed.returncode == 0, completed.stderr
    states = [flow_run["state_name"] for flow_run in prefect.flow_runs(f"update-{album}")]
    assert states == ["Skipped", "Completed"]


def processes_of(pid):
    """Yield a process and all that came of it."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            yield from processes_of(int(child))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_whose_host_died_is_buried_and_told(prefect, album, schedule, tmp_path):
    deployment, _ = schedule(*NIGHTLY)
    (table,) = (album / "tables" / "images").iterdir()
    log, notify = tmp_path / "worker", tmp_path / "notify.yaml"
    with listening() as (address, posted), hold(Folder(str(album)), str(table.relative_to(album))):
        block = prefect.run("python", "-c", SAVE_WEBHOOK, address).stdout.strip()
        notify.write_text((DOCKER / "notify.yaml").read_text().replace("BLOCK", block))
        done = prefect.run("prefect", "automation", "create", "--from-file", notify)
        assert done.returncode == 0, done.stderr
        start = "prefect worker start --pool pairwright --type process"
        worker = prefect.spawn(log, *start.split())
        path = f"deployments/{deployment['id']}/create_flow_run"
        run_id = prefect.post(path, state={"type": "SCHEDULED"})["id"]
        beats = {
            "event": {"name": ["prefect.flow-run.heartbeat"]},
            "resource": {"id": [f"prefect.flow-run.{run_id}"]},
        }
        wait_for(lambda: prefect.post("events/filter", filter=beats)["events"], worker, log)
        for pid in [*processes_of(worker.pid)]:
            os.kill(pid, signal.SIGKILL)
        worker.wait(30)
        own = {"id": {"any_": [run_id]}}
        (flow_run,) = prefect.ask("flow_runs", flow_runs=own)
        assert flow_run["state_name"] == "Running"
        text = json.loads(posted.get(timeout=400))["text"]
    (flow_run,) = prefect.ask("flow_runs", flow_runs=own)
    assert flow_run["state_name"] == "Crashed"
    assert text.startswith(f"{flow_run['name']}: Crashed\nits heartbeats stopped")
    for automation in prefect.ask("automations"):
        url = f"{prefect.environment['PREFECT_API_URL']}/automations/{automation['id']}"
        httpx.delete(url, timeout=30).raise_for_status()


def test_the_deployments_of_the_repository_name_flows_and_their_parameters():
    from prefect.flows import load_flow_from_entrypoint

    deployments = yaml.safe_load((DOCKER / "prefect.yaml").read_text())["deployments"]
    names = ["build", "resume", "update", "train", "export", "evaluate-model"]
    assert [deployment["name"] for deployment in deployments] == names
    for deployment in deployments:
        entrypoint = deployment["entrypoint"]
        assert entrypoint.startswith("pairwright.flows."), "a module, not a file"
        load_flow_from_entrypoint(entrypoint).validate_parameters(deployment["parameters"])
