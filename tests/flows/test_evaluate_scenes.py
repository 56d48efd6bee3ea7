"""A model on the rendered scenes of a real build."""

import shutil
from pathlib import Path

import pairwright as pw
from pairwright.schemas.rows import ImageRow, PreferenceRow
from pairwright.tasks.report.measure_health import read_judged
from pairwright.tasks.store.files import Folder
from tests.fixtures.benchmarks import counts_of, evaluate, scores_of
from tests.fixtures.chat_server import Asked, chat_server


def test_a_model_that_says_what_the_graph_says(rendered: Path, tmp_path: Path) -> None:
    rows = [
        row for row in pw.open(rendered)["images"].rows() if isinstance(row, ImageRow) and row.graph
    ]
    said = {
        row.image: ", ".join(f"a {one.colour} {one.shape}" for one in row.graph.objects)
        for row in rows
        if row.graph
    }
    to = tmp_path / "scores.json"
    with chat_server(lambda asked: said.get(b"".join(asked.images), "a square")) as server:
        words = (
            "tiny",
            "--server",
            server.url,
            "-b",
            "scenes",
            "--data",
            rendered,
            "--to",
            to,
            "--version",
        )
        assert evaluate(*words, 1) == 0
        assert evaluate(*words, 2) == 2, "there is no such version"
    counts = counts_of(to)
    assert counts["answered"] == counts["scored_items"] >= 1
    assert {name: score for (_, name), score in scores_of(to).items()} == {
        "CHAIR_s": 0,
        "CHAIR_i": 0,
        "recall": 1,
    }


def test_the_report_shows_what_a_judge_takes_for_true(rendered: Path, tmp_path: Path) -> None:
    """Of three preferences a judge believes both texts, says nothing that can be read, and is
    right."""
    data = Path(shutil.copytree(rendered, tmp_path / "data"))
    rows = [row for row in pw.open(data)["preferences"].rows() if isinstance(row, PreferenceRow)]
    first, second, third = sorted((row for row in rows if row.rejected), key=lambda row: row.key)[
        :3
    ]
    believed = {first.chosen, first.rejected, third.chosen}

    def answer(asked: Asked) -> str:
        text = asked.text.partition('"')[2].rpartition('" True or False')[0]
        return "Perhaps." if text in (second.chosen, second.rejected) else str(text in believed)

    with chat_server(answer) as server:
        words = ("tiny", "--server", server.url, "-b", "preferences", "--data", data, "--limit", 3)
        assert evaluate(*words) == 0
    found = read_judged(Folder(str(data)))
    assert found == {first.key: True, third.key: False}
    pw.open(data).report(pairs=0)
    page = (data / "report/index.html").read_text()
    assert "Rejected, yet believed" in page
    assert "50.0%" in page
