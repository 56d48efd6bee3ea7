"""From the published layouts of difference captions to a trained model's scores under their
protocols."""

import json

import pytest

import pairwright as pw
from pairwright.prompts import load_wordings
from tests.fixtures.benchmarks import counts_of, evaluate, rows_of, scores_of
from tests.fixtures.caption_scores import reference_scores
from tests.fixtures.command import run, words_of
from tests.fixtures.layouts import PUBLISHED, put_lines, put_pair

GIVEN = words_of(["differences.writer=given", "rejections.enabled=false", "run.workers=1"])
FAST = words_of(
    {
        "optimiser.max_steps": 2,
        "optimiser.per_device_train_batch_size": 2,
        "model.lora.rank": 4,
        "output.merge_adapters": "false",
        "data.max_eval_rows": 1,
    }
)
GROUPS = {
    "spot-the-diff": {"spot-the-diff-records": 6, "spot-the-diff-multi": 6},
    "clevr-change": {"change": 3, "no change": 4},
    "clevr-dc": {"change": 2, "no change": 1},
    "image-editing-request": {},
    "omnidiff": {"real": 2, "rendered": 1},
}
"""By kind, the categories of scores, with how many items each has."""


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Give what builds a dataset of a kind, once: its folder, the source's, and the references."""
    built = {}

    def build(kind):
        if kind not in built:
            folder = tmp_path_factory.mktemp(kind)
            root, out = folder / kind, folder / "out"
            references = PUBLISHED[kind](root)
            assert run("build", f"{kind}:{root}", "--out", out, *GIVEN) == 0
            built[kind] = (out, root, references)
        return built[kind]

    return build


def asked_of_people():
    """Return the questions that people's texts answer, in training as in a benchmark."""
    wordings = load_wordings("ask_difference").kinds["given"]
    texts = [wording.text for wording in wordings]
    return {*texts, *(f"<image><image>{text}" for text in texts)}


@pytest.fixture(scope="module")
def trained(published):
    """Return the folder of a dataset of changed and of unchanged pairs, and its trained model."""
    out, *_ = published("clevr-change")
    assert run("train", out, "--objective", "sft", *FAST) == 0
    return out


@pytest.mark.parametrize("kind", PUBLISHED)
def test_a_published_layout_gives_preferences_to_train_on(kind, published):
    out, *_ = published(kind)
    rows = pw.open(out)["preferences"].where("split = 'train'")
    assert {row.chosen_model for row in rows.rows()} == {"given"}
    assert {row.prompt[0].text for row in rows.rows()} <= asked_of_people()
    assert len(rows) == (6 + 12 if kind == "clevr-change" else 6)


@pytest.mark.parametrize("kind", PUBLISHED)
def test_scores_of_a_trained_model_are_the_published_ones(
    kind, published, trained, tmp_path, monkeypatch, capsys
):
    _, root, references = published(kind)
    to = tmp_path / "scores.json"
    monkeypatch.setenv("PATH", "")  # as on a machine without Java
    assert evaluate(trained / "runs/sft", "--benchmark", kind, "--data", root, "--to", to) == 0
    answers = {name: row["answer"] for name, row in rows_of(to).items()}
    assert {row["question"] for row in rows_of(to).values()} <= asked_of_people()
    counts = counts_of(to)
    assert (counts["scored_items"], counts["without_image"]) == (len(references), 1)
    scores = {name: value for (of, name), value in scores_of(to).items() if not of}
    assert scores == pytest.approx(reference_scores(answers, references), abs=1e-4)
    written = json.loads(to.read_text())
    groups = {row["category"]: row["items"] for row in written["scores"] if row["category"]}
    assert groups == GROUPS[kind]
    assert any("; blank ones, 1, count. " in note for note in written["notes"])
    assert any("meteor was skipped" in note for note in written["notes"])
    capsys.readouterr()
    assert run("runs", trained, "--json") == 0
    (listed,) = json.loads(capsys.readouterr().out)
    scored = [row for row in listed["evaluations"] if row["benchmark"] == kind]
    assert len(scored) == len(written["scores"])


@pytest.mark.slow
def test_eight_pairs_that_people_described_train_sft_and_adpo(tmp_path):
    lines = []
    for number in range(8):
        names = (f"{number}a.png", f"{number}b.png")
        put_pair(tmp_path, number, *names)
        text = f"thing {number} is gone"
        lines.append({"image1": names[0], "image2": names[1], "difference": text})
    source, out = put_lines(tmp_path, "pairs.jsonl", *lines), tmp_path / "out"
    words = [*GIVEN, "--set", "preferences.validation_share=0.01"]
    assert run("build", f"jsonl-pairs:{source}", "--out", out, *words) == 0
    differences = {(row.text, row.model) for row in pw.open(out)["differences"].rows()}
    assert differences == {(line["difference"], "given") for line in lines}
    splits = [row.split for row in pw.open(out)["preferences"].rows()]
    for objective, start in (("sft", ()), ("adpo", ("--from", "sft"))):
        assert run("train", out, "--objective", objective, *start, *FAST) == 0
        data = json.loads((out / f"runs/{objective}/data.json").read_text())
        assert data["rows"]["train"] == splits.count("train") > 4
        assert not (out / f"runs/{objective}/refused.jsonl").exists()
