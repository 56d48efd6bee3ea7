"""A model on the rendered scenes of a real build."""

from pathlib import Path

import pytest

from flows.read_rows import read_rows
from schemas.rows import ImageRow
from tests.fixtures.benchmarks import counts_of, evaluate, scores_of
from tests.fixtures.chat_server import chat_server
from tests.flows.conftest import SMALL, build


def test_a_model_that_says_what_the_graph_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = build(tmp_path / "demo", None, until="sources", settings=[*SMALL, "scenes.worlds=1"])
    rows = [row for row in read_rows(str(rendered), "images") if isinstance(row, ImageRow) and row.graph]
    said = {
        row.image: ", ".join(f"a {one.colour} {one.shape}" for one in row.graph.objects) for row in rows if row.graph
    }
    to = tmp_path / "scores.json"
    with chat_server(lambda asked: said.get(b"".join(asked.images), "a square")) as server:
        assert (
            evaluate(monkeypatch, "tiny", "--server", server.url, "-b", "scenes", "--data", rendered, "--to", to) == 0
        )
    counts = counts_of(to)
    assert counts["answered"] == counts["scored_items"] >= 1
    assert {name: score for (_, name), score in scores_of(to).items()} == {
        "CHAIR_s": 0, "CHAIR_i": 0, "recall": 1, "described": 1,
    }  # fmt: skip
