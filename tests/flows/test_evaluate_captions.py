import json
import re
import shutil

import pytest
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge

from pairwright.tasks.evaluation.ptb_rules import tokenise
from tests.fixtures import command

PREDICTIONS = {
    "1": "The red car isn't there.",
    "2": "Two people have left the parking-lot",
    "3": "",
}
REFERENCES = [
    ("1", "The red car is gone"),
    ("1", "the red car has left"),
    ("2", "The two people are no longer in the parking lot."),
    ("3", "no change"),
    ("3", " "),
]


def run(monkeypatch, *words) -> int:
    monkeypatch.setenv("PATH", "")  # as on a machine without Java
    return command.run("evaluate", "captions", *words)


@pytest.fixture
def files(tmp_path):
    predictions, references = tmp_path / "predictions.jsonl", tmp_path / "references.json"
    lines = (json.dumps({"id": name, "text": text}) + "\n" for name, text in PREDICTIONS.items())
    predictions.write_text("".join(lines))
    rows = [
        {"image_id": name, "id": number, "caption": text}
        for number, (name, text) in enumerate(REFERENCES)
    ]
    references.write_text(json.dumps({"annotations": rows, "images": []}))
    return predictions, references


def expected():
    texts = [(name, text) for name, text in REFERENCES if text.strip()]
    return reference_scores(
        PREDICTIONS,
        {name: [text for other, text in texts if other == name] for name in PREDICTIONS},
    )


def reference_scores(answers: dict[str, str], references: dict[str, list[str]]) -> dict[str, float]:
    """Return what pycocoevalcap makes of the same tokens."""
    theirs = {name: [tokenise(text) for text in texts] for name, texts in references.items()}
    own = {name: [tokenise(answers[name])] for name in references}
    bleus, _ = Bleu().compute_score(theirs, own, verbose=0)
    found = {f"BLEU-{number}": score for number, score in enumerate(bleus, start=1)}
    return {
        **found,
        "ROUGE-L": Rouge().compute_score(theirs, own)[0],
        "CIDEr-D": Cider().compute_score(theirs, own)[0],
    }


def test_the_scores_are_the_reference_implementations(files, monkeypatch, capsys):
    assert run(monkeypatch, *files, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert {name: one["score"] for name, one in found["scores"].items()} == pytest.approx(
        expected(), abs=1e-9
    )
    assert all(one["low"] <= one["score"] <= one["high"] for one in found["scores"].values())
    assert (found["items"], found["references"], found["predictions"]) == (
        3,
        4,
        {"empty": 1, "missing": 0},
    )
    assert found["left_out"] == {"blank_references": 1, "items_without_references": 0}
    assert set(found["skipped"]) == {"meteor", "spice"}
    assert "no Java" in found["skipped"]["meteor"]


def test_a_table_tells_scores_and_what_was_skipped(files, monkeypatch, capsys):
    assert run(monkeypatch, *files, "--resamples", "0") == 0
    said = capsys.readouterr().out
    assert f"{100 * expected()['CIDEr-D']:.2f}" in said
    assert "3 items, 4 references; protocol coco" in said
    assert "1 predictions" in said
    assert re.search("meteor .*Java", said)


@pytest.mark.skipif(shutil.which("java") is None, reason="no Java")
def test_what_was_asked_for_and_skipped_is_told(files, capsys):
    words = ("--metric", "bleu", "--metric", "spice", "--json")
    assert command.run("evaluate", "captions", *files, *words) == 1, "SPICE was asked for"
    found = json.loads(capsys.readouterr().out)
    assert found["scores"]["BLEU-4"]["score"] == pytest.approx(expected()["BLEU-4"])
    assert "get_stanford_models" in found["skipped"]["spice"]
