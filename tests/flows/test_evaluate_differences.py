"""From the published layouts of difference captions to a trained model's scores under their
protocols."""

import json
from pathlib import Path

import pytest

import pairwright as pw
from tests.fixtures.benchmarks import counts_of, evaluate, rows_of, scores_of
from tests.fixtures.command import run, words_of
from tests.fixtures.layouts import PUBLISHED, put_lines, put_pair
from tests.flows.test_evaluate_captions import reference_scores

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


@pytest.mark.parametrize("kind", PUBLISHED)
def test_from_the_published_layout_to_published_scores(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root, out, to = tmp_path / kind, tmp_path / "out", tmp_path / "scores.json"
    references = PUBLISHED[kind](root)
    assert run("build", f"{kind}:{root}", "--out", out, *GIVEN) == 0
    rows = pw.open(out)["preferences"].where("split = 'train'")
    assert {row.chosen_model for row in rows.rows()} == {"given"}
    assert len(rows) == (6 + 12 if kind == "clevr-change" else 6)
    assert run("train", out, "--objective", "sft", *FAST) == 0
    monkeypatch.setenv("PATH", "")  # as on a machine without Java
    words = (out / "runs/sft", "--benchmark", kind, "--data", root, "--to", to)
    assert evaluate(*words) == 0
    said = {name: row["answer"] for name, row in rows_of(to).items()}
    counts = counts_of(to)
    assert (counts["scored_items"], counts["without_image"]) == (len(references), 1)
    found = {name: value for (of, name), value in scores_of(to).items() if not of}
    assert found == pytest.approx(reference_scores(said, references), abs=1e-4)
    held = json.loads(to.read_text())
    assert {one["category"]: one["items"] for one in held["scores"] if one["category"]} == GROUPS[
        kind
    ]
    assert any("; blank ones, 1, count. " in note for note in held["notes"])
    assert any("meteor was skipped" in note for note in held["notes"])
    capsys.readouterr()
    assert run("runs", out, "--json") == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert len(listed["evaluations"]) == len(held["scores"])


@pytest.mark.slow
def test_eight_pairs_that_people_described_train_sft_and_adpo(tmp_path: Path) -> None:
    lines = [
        {"image1": f"{n}a.png", "image2": f"{n}b.png", "difference": f"thing {n} is gone"}
        for n in range(8)
    ]
    for number in range(8):
        put_pair(tmp_path, number, f"{number}a.png", f"{number}b.png")
    source, out = put_lines(tmp_path, "pairs.jsonl", *lines), tmp_path / "out"
    assert (
        run(
            "build",
            f"jsonl-pairs:{source}",
            "--out",
            out,
            *GIVEN,
            "--set",
            "preferences.validation_share=0.01",
        )
        == 0
    )
    differences = list(pw.open(out)["differences"].rows())
    assert {(row.text, row.model) for row in differences} == {
        (line["difference"], "given") for line in lines
    }
    for objective, start in (("sft", ()), ("adpo", ("--from", "sft"))):
        assert run("train", out, "--objective", objective, *start, *FAST) == 0
        data = json.loads((out / f"runs/{objective}/data.json").read_text())
        assert (
            data["rows"]["train"]
            == sum(row.split == "train" for row in pw.open(out)["preferences"].rows())
            > 4
        )
        assert not (out / f"runs/{objective}/refused.jsonl").exists()
