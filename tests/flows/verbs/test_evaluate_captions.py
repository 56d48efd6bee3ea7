import json
import re
import shutil

import pytest

from tests.fixtures.caption_scores import reference_scores
from tests.fixtures.command import run

PREDICTIONS = {
    "1": "The red car isn't there.",
    "2": "Two people have left the parking-lot",
    "3": "",
}
REFERENCES = {
    "1": ["The red car is gone", "the red car has left"],
    "2": ["The two people are no longer in the parking lot."],
    "3": ["no change", " "],
}
EXPECTED = reference_scores(PREDICTIONS, {**REFERENCES, "3": ["no change"]})


@pytest.fixture
def files(tmp_path):
    predictions, references = tmp_path / "predictions.jsonl", tmp_path / "references.json"
    lines = (json.dumps({"id": name, "text": text}) + "\n" for name, text in PREDICTIONS.items())
    predictions.write_text("".join(lines))
    pairs = [(name, text) for name, texts in REFERENCES.items() for text in texts]
    rows = [
        {"image_id": name, "id": number, "caption": text}
        for number, (name, text) in enumerate(pairs)
    ]
    references.write_text(json.dumps({"annotations": rows, "images": []}))
    return predictions, references


@pytest.fixture
def no_java(monkeypatch):
    monkeypatch.setenv("PATH", "")


@pytest.mark.usefixtures("no_java")
def test_the_scores_are_the_reference_implementations(files, capsys):
    assert run("evaluate", "captions", *files, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    scores = result["scores"]
    values = {name: score["score"] for name, score in scores.items()}
    assert values == pytest.approx(EXPECTED, abs=1e-9)
    assert all(score["low"] <= score["score"] <= score["high"] for score in scores.values())
    assert (result["items"], result["references"]) == (3, 4)
    assert result["predictions"] == {"empty": 1, "missing": 0}
    assert result["left_out"] == {"blank_references": 1, "items_without_references": 0}
    assert set(result["skipped"]) == {"meteor", "spice"}
    assert "no Java" in result["skipped"]["meteor"]


@pytest.mark.usefixtures("no_java")
def test_a_table_tells_scores_and_skipped_metrics(files, capsys):
    assert run("evaluate", "captions", *files, "--resamples", "0") == 0
    printed = capsys.readouterr().out
    assert f"{100 * EXPECTED['CIDEr-D']:.2f}" in printed
    assert "3 items, 4 references; protocol coco" in printed
    assert "1 predictions" in printed
    assert re.search("meteor .*Java", printed)


@pytest.mark.skipif(shutil.which("java") is None, reason="no Java")
def test_a_metric_that_was_asked_for_and_skipped_is_an_error(files, capsys):
    words = ("--metric", "bleu", "--metric", "spice", "--json")
    assert run("evaluate", "captions", *files, *words) == 1
    result = json.loads(capsys.readouterr().out)
    assert result["scores"]["BLEU-4"]["score"] == pytest.approx(EXPECTED["BLEU-4"])
    assert "get_stanford_models" in result["skipped"]["spice"]
