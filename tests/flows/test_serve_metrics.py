"""A build's numbers are served while it runs, on loopback only; without the port a build is as it
was."""

import json
import socket
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.fixtures.chat_server import Asked, chat_server
from tests.fixtures.command import counts_of, run, words_of
from tests.fixtures.prefect_server import free_port
from tests.flows.conftest import SMALL, WIDE
from tests.flows.test_report_served import answer as sound
from tests.flows.test_report_served import kind_of

SERVED = [
    "captions.writer=served",
    "models.chat.model=tiny",
    "models.chat.structured_output=none",
    "run.workers=1",
]


def scrape(port: int) -> dict[tuple[str, ...], float]:
    """Return the values by name and labels: ("rows", "ok", "images")."""
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
    found: dict[tuple[str, ...], float] = {}
    for one in (
        sample for family in text_string_to_metric_families(text) for sample in family.samples
    ):
        name = one.name.removeprefix("pairwright_").removesuffix("_total")
        found[name, *(one.labels[label] for label in sorted(one.labels))] = one.value
    return found


def test_rows_tokens_and_seconds_are_scraped_while_a_build_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port, found = free_port(), list[dict[tuple[str, ...], float]]()

    def answer(asked: Asked) -> object:
        if kind_of(asked) != "probe":
            found.append(scrape(port))
        return sound(asked)

    with chat_server(answer) as server:
        endpoint = f"models.chat.endpoint={server.url}"
        own = [*SMALL, *WIDE, *SERVED, "run.rows_per_shard=3", f"run.metrics_port={port}", endpoint]
        assert run("build", "--out", tmp_path / "out", "--until", "captions", *words_of(own)) == 0
    counts = counts_of(tmp_path / "out", capsys)
    images, captions = counts["images"]["rows"], counts["captions"]["in"]
    done = captions - (captions % 3 or 3)
    assert done, "there are several shards"
    first, last = found[0], found[-1]
    assert first["rows", "ok", "images"] == images
    assert first["seconds", "images"] > 0
    assert first["shards", "done", "images"] >= 1
    assert first["owed_rows", "captions"] == captions
    assert ("rows", "ok", "captions") not in first
    assert last["rows", "ok", "captions"] == done
    assert last["owed_rows", "captions"] == captions - done
    assert last["tokens", "prompt", "captions"] == 7 * done, "the scripted server counts 7 and 3"
    assert last["tokens", "completion", "captions"] == 3 * done
    with pytest.raises(httpx.ConnectError):
        scrape(port)


def test_a_build_goes_on_where_the_port_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        own = [*SMALL, "run.workers=1", f"run.metrics_port={port}"]
        assert run("build", "--out", tmp_path / "out", "--until", "images", *words_of(own)) == 0
    assert (
        f"run.metrics_port {port}: no metrics are served: Address already in use"
        in capsys.readouterr().err
    )
    record = json.loads((tmp_path / "out" / "build.json").read_text())
    assert record["profile"]["run"]["metrics_port"] == port
