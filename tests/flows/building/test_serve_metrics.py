"""A build's numbers are served while it runs, on loopback only; without the port a build is as it
was."""

import json
import socket

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.fixtures.chat_server import chat_server
from tests.fixtures.command import counts_of, run, words_of
from tests.fixtures.prefect_server import free_port
from tests.fixtures.scripted_model import answer, kind_of
from tests.flows.conftest import SMALL, WIDE, with_images_of

SERVED = [
    *SMALL,
    *WIDE,
    "captions.writer=served",
    "models.chat.model=tiny",
    "models.chat.structured_output=none",
    "run.rows_per_shard=3",
]


def scrape(port):
    """Return the values by name and labels: ("rows", "ok", "images")."""
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
    families = text_string_to_metric_families(text)
    values = {}
    for sample in (sample for family in families for sample in family.samples):
        name = sample.name.removeprefix("pairwright_").removesuffix("_total")
        values[name, *(sample.labels[label] for label in sorted(sample.labels))] = sample.value
    return values


def test_rows_tokens_and_seconds_are_scraped_while_a_build_runs(tmp_path, capsys):
    port, scraped = free_port(), []

    def scrape_and_answer(request):
        if kind_of(request) != "probe":
            scraped.append(scrape(port))
        return answer(request)

    out = tmp_path / "out"
    with chat_server(scrape_and_answer) as server:
        own = [f"run.metrics_port={port}", f"models.chat.endpoint={server.url}"]
        words = words_of([*SERVED, *own])
        assert run("build", "--out", out, "--until", "captions", *words) == 0
    counts = counts_of(out, capsys)
    images, captions = counts["images"]["rows"], counts["captions"]["in"]
    done = captions - (captions % 3 or 3)
    assert done, "there are several shards"
    first, last = scraped[0], scraped[-1]
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


def test_a_build_goes_on_where_the_port_is_taken(rendered, tmp_path, capsys):
    out = with_images_of(rendered, tmp_path / "out")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        words = words_of([*SMALL, f"run.metrics_port={port}"])
        assert run("build", "--out", out, "--until", "images", *words) == 0
    message = f"run.metrics_port {port}: no metrics are served: Address already in use"
    assert message in capsys.readouterr().err
    record = json.loads((out / "build.json").read_text())
    assert record["profile"]["run"]["metrics_port"] == port
