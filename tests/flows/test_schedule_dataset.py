"""Schedules: what is refused, what the forms show, and the deployments that a real server gets."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from pairwright.flows.cli import keep_quiet
from pairwright.flows.pipeline.stages import GROUPS
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.open_tables import hold
from tests.fixtures.command import run
from tests.fixtures.prefect_server import PrefectServer
from tests.fixtures.terminal import wait_for
from tests.flows.test_build_dataset import write_photographs
from tests.flows.test_guides import listening

ROOT = Path(__file__).parent.parent.parent
NIGHTLY = ("--cron", "0 2 * * *")


@pytest.fixture
def album(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    photographs = write_photographs(tmp_path / "photographs", 4)
    out = tmp_path / "album"
    assert (
        run("build", photographs, "--out", out, "--until", "embeddings", "--set", "run.workers=1")
        == 0
    )
    return out


def test_what_is_no_schedule_is_refused_by_name(
    album: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, said in (
        ([album, "--cron", "every night"], "--cron every night: "),
        ([album], "--cron is missing"),
        ([album, *NIGHTLY, "--timezone", "Mars/Olympus"], "--timezone Mars/Olympus: "),
        ([album.parent / "nothing", *NIGHTLY], "`pairwright build"),
        ([album, *NIGHTLY], "prefect server start --host 127.0.0.1"),
    ):
        assert run("schedule", *words) == 2
        assert said in capsys.readouterr().err


def test_parameters_become_a_form() -> None:
    from prefect.utilities.callables import parameter_schema

    from pairwright.flows.prefect import build_dataset, run_in_prefect

    flows = (
        build_dataset.build_dataset,
        build_dataset.resume_dataset,
        build_dataset.update_dataset,
    )
    others = (
        run_in_prefect.export_dataset,
        run_in_prefect.train_model,
        run_in_prefect.evaluate_model,
    )
    schemas = {flow.name: parameter_schema(flow) for flow in (*flows, *others)}
    for name, schema in schemas.items():
        for parameter, about in schema.properties.items():
            assert about.get("description"), f"{name}: {parameter} is not explained"
    assert schemas["build-dataset"].required == ["out"]
    until = schemas["build-dataset"].properties["until"]
    assert until["default"] == ""
    assert {"", "pairs", "preferences", *GROUPS} <= set(until["enum"])
    assert schemas["resume-dataset"].properties["stage"]["enum"] == until["enum"]
    assert {"laptop", "scenes"} <= set(schemas["build-dataset"].properties["profile"]["examples"])
    assert schemas["build-dataset"].properties["limit"]["anyOf"][0] == {
        "minimum": 1,
        "type": "integer",
    }
    assert "adpo" in schemas["train-model"].properties["objective"]["enum"]
    assert {"hf", "trl"} <= set(schemas["export-dataset"].properties["form"]["enum"])
    assert "scenes" in schemas["evaluate-model"].properties["benchmark"]["enum"]


def test_telemetry_is_off_unless_the_user_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DO_NOT_TRACK", "PREFECT_SERVER_ANALYTICS_ENABLED"):
        monkeypatch.setenv(name, "")  # so that it is put back as it was
        monkeypatch.delenv(name)
    keep_quiet()
    assert (os.environ["DO_NOT_TRACK"], os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"]) == (
        "1",
        "false",
    )
    monkeypatch.delenv("DO_NOT_TRACK")
    monkeypatch.setenv("PREFECT_SERVER_ANALYTICS_ENABLED", "true")
    keep_quiet()
    assert "DO_NOT_TRACK" not in os.environ
    assert os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] == "true"


@pytest.mark.slow
def test_a_schedule_is_applied_changed_and_paused(prefect: PrefectServer, album: Path) -> None:
    done = prefect.run("pairwright", "schedule", album, *NIGHTLY, "--timezone", "Europe/Zurich")
    assert done.returncode == 0, done.stderr
    assert "prefect worker start --pool pairwright --type process" in done.stdout
    own = {"deployments": {"tags": {"all_": ["album"]}}}
    (deployment,) = prefect.ask("deployments", **own)
    assert deployment["entrypoint"] == "pairwright.flows.prefect.build_dataset.update_dataset"
    assert deployment["parameters"] == {"dataset": str(album)}
    assert deployment["work_pool_name"] == "pairwright"
    (one,) = deployment["schedules"]
    assert (one["active"], one["schedule"]["cron"], one["schedule"]["timezone"]) == (
        True,
        "0 2 * * *",
        "Europe/Zurich",
    )
    again = ("pairwright", "schedule", album, "--cron", "0 3 * * *", "--pause")
    assert (
        prefect.run(*again, PREFECT_DEPLOYMENTS_DEFAULT_WORK_POOL_NAME="pairwright-gpu").returncode
        == 0
    )
    (changed,) = prefect.ask("deployments", **own)
    assert (changed["id"], changed["work_pool_name"]) == (deployment["id"], "pairwright-gpu")
    assert [(one["schedule"]["cron"], one["active"]) for one in changed["schedules"]] == [
        ("0 3 * * *", False)
    ]
    assert prefect.run("pairwright", "schedule", album, "--cron", "0 4 * * *").returncode == 0
    done = prefect.run("pairwright", "schedule", album, "--pause")
    assert done.returncode == 0, done.stderr
    (paused,) = prefect.ask("deployments", **own)
    assert [(one["schedule"]["cron"], one["active"]) for one in paused["schedules"]] == [
        ("0 4 * * *", False)
    ]


@pytest.mark.slow
def test_an_update_waits_for_none(prefect: PrefectServer, album: Path) -> None:
    update = (
        f"from pairwright.flows.prefect.build_dataset import update_dataset; "
        f"update_dataset({str(album)!r})"
    )
    with hold(Folder(str(album)), "schedule"):
        done = prefect.run("python", "-c", update)
    assert done.returncode == 0, done.stderr
    done = prefect.run("python", "-c", update)
    assert done.returncode == 0, done.stderr
    assert [run["state_name"] for run in prefect.flow_runs(f"update-{album}")] == [
        "Skipped",
        "Completed",
    ]


def processes_of(pid: int) -> Iterator[int]:
    """Yield a process and all that came of it."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            yield from processes_of(int(child))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_whose_host_died_is_buried_and_told(
    prefect: PrefectServer, album: Path, tmp_path: Path
) -> None:
    assert prefect.run("pairwright", "schedule", album, *NIGHTLY).returncode == 0
    albums = prefect.ask("deployments", deployments={"tags": {"all_": ["album"]}})
    (deployment,) = (one for one in albums if one["parameters"]["dataset"] == str(album))
    (table,) = (album / "tables" / "images").iterdir()
    log, own = tmp_path / "worker", tmp_path / "notify.yaml"
    with listening() as (address, told), hold(Folder(str(album)), str(table.relative_to(album))):
        make = (
            f"from prefect.blocks.webhook import Webhook; "
            f"print(Webhook(url={address!r}).save('dead', overwrite=True))"
        )
        block = prefect.run("python", "-c", make).stdout.strip()
        own.write_text((ROOT / "docker" / "notify.yaml").read_text().replace("BLOCK", block))
        done = prefect.run("prefect", "automation", "create", "--from-file", own)
        assert done.returncode == 0, done.stderr
        worker = prefect.spawn(
            log, "prefect", "worker", "start", "--pool", "pairwright", "--type", "process"
        )
        run = prefect.post(
            f"deployments/{deployment['id']}/create_flow_run", state={"type": "SCHEDULED"}
        )["id"]
        beats = {
            "event": {"name": ["prefect.flow-run.heartbeat"]},
            "resource": {"id": [f"prefect.flow-run.{run}"]},
        }
        wait_for(lambda: prefect.post("events/filter", filter=beats)["events"], worker, log)
        for pid in [*processes_of(worker.pid)]:
            os.kill(pid, signal.SIGKILL)
        worker.wait(30)
        (found,) = prefect.ask("flow_runs", flow_runs={"id": {"any_": [run]}})
        assert found["state_name"] == "Running"
        said = json.loads(told.get(timeout=400))["text"]
    (found,) = prefect.ask("flow_runs", flow_runs={"id": {"any_": [run]}})
    assert found["state_name"] == "Crashed"
    assert said.startswith(f"{found['name']}: Crashed\nits heartbeats stopped")
    for one in prefect.ask("automations"):
        api = prefect.environment["PREFECT_API_URL"]
        httpx.delete(f"{api}/automations/{one['id']}", timeout=30).raise_for_status()


def test_the_deployments_of_the_repository_name_flows_and_their_parameters() -> None:
    from prefect.flows import load_flow_from_entrypoint

    deployments = yaml.safe_load((ROOT / "docker" / "prefect.yaml").read_text())["deployments"]
    assert [one["name"] for one in deployments] == [
        "build",
        "resume",
        "update",
        "train",
        "export",
        "evaluate-model",
    ]
    for one in deployments:
        assert one["entrypoint"].startswith("pairwright.flows."), "a module, not a file"
        load_flow_from_entrypoint(one["entrypoint"]).validate_parameters(one["parameters"])
