"""A model on the rendered scenes of a real build."""

import shutil

import pairwright as pw
from pairwright.tasks.report.measure_health import read_judged
from pairwright.tasks.store.files import Folder
from tests.fixtures.benchmarks import counts_of, evaluate, scores_of
from tests.fixtures.chat_server import chat_server


def test_a_model_that_names_the_things_of_the_graph(rendered, tmp_path):
    things = {
        row.image: ", ".join(f"a {thing.colour} {thing.shape}" for thing in row.graph.objects)
        for row in pw.open(rendered)["images"].rows()
    }
    to = tmp_path / "scores.json"
    with chat_server(lambda request: things.get(b"".join(request.images), "a square")) as server:
        words = ("tiny", "--server", server.url, "-b", "scenes", "--data", rendered, "--to", to)
        assert evaluate(*words, "--version", 1) == 0
        assert evaluate(*words, "--version", 2) == 2, "there is no such version"
    counts = counts_of(to)
    assert counts["answered"] == counts["scored_items"] >= 1
    scores = {name: score for (_, name), score in scores_of(to).items()}
    assert scores == {"CHAIR_s": 0, "CHAIR_i": 0, "recall": 1}


def test_the_report_shows_what_a_judge_takes_for_true(rendered, tmp_path):
    """Of three preferences a judge believes both texts, says nothing that can be read, and is
    right."""
    data = shutil.copytree(rendered, tmp_path / "data")
    rows = [row for row in pw.open(data)["preferences"].rows() if row.rejected]
    first, second, third = sorted(rows, key=lambda row: row.key)[:3]
    believed = {first.chosen, first.rejected, third.chosen}
    unclear = {second.chosen, second.rejected}

    def answer(request):
        text = request.text.partition('"')[2].rpartition('" True or False')[0]
        return "Perhaps." if text in unclear else str(text in believed)

    with chat_server(answer) as server:
        words = ("tiny", "--server", server.url, "-b", "preferences", "--data", data, "--limit", 3)
        assert evaluate(*words) == 0
    assert read_judged(Folder(str(data))) == {first.key: True, third.key: False}
    pw.open(data).report(pairs=0)
    page = (data / "report/index.html").read_text()
    assert "Rejected, yet believed" in page
    assert "50.0%" in page
