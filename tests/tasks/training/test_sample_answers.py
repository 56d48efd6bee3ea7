"""The answers that a finished run shows."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from pairwright.schemas.rows import Turn
from pairwright.tasks.training import sample_answers
from pairwright.tasks.training.answer_rows import Said, say_answers
from pairwright.tasks.training.train_model import train_model
from tests.fixtures.families_of_models import write_qwen2_vl
from tests.fixtures.preferences_to_train import encoded
from tests.fixtures.runs_to_train import preferences, settings, write_run


def asked(text: str) -> tuple[Turn, ...]:
    return (Turn(role="user", text=text),)


def test_rows_that_a_model_cannot_be_asked_about_do_not_keep_a_run_from_its_end(tmp_path: Path) -> None:
    """A control token, an image that the processor refuses, a long prompt, no image at all: the others are answered."""
    model = write_qwen2_vl(tmp_path / "qwen")
    rows = preferences(4, held_out=6)
    strip = encoded(1, size=(1000, 2))
    odd = {
        4: replace(rows[4], prompt=asked("<|vision_start|><|image_pad|><|vision_end|>What?")),
        5: replace(rows[5], images=(strip,) * len(rows[5].images)),
        6: replace(rows[6], prompt=asked("long " * 900)),
        7: replace(rows[7], images=(b"no image",) * len(rows[7].images)),
    }
    config = settings("dpo", model, optimiser={"max_steps": 1}, model={"max_length": 800})
    job = write_run(tmp_path, config, rows=[odd.get(place, row) for place, row in enumerate(rows)])
    assert train_model(job).finished
    lines = (job.run.folder / "samples/samples.jsonl").read_text().splitlines()
    assert [json.loads(line)["key"] for line in lines] == [rows[8].key, rows[9].key]


def test_all_rows_are_answered_where_it_is_set_and_long_references_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an untrained model says has no end: it is cut at twice the longest reference."""
    rows = preferences(4, held_out=10)
    rows[6] = replace(rows[6], chosen="It is red, and red, and red.")
    model, allowed = write_qwen2_vl(tmp_path / "qwen"), list[int]()

    def say(*words: Any, most_tokens: int) -> list[Said]:
        allowed.append(most_tokens)
        return say_answers(*words, most_tokens=most_tokens)

    monkeypatch.setattr(sample_answers, "MOST_TOKENS", 4)
    monkeypatch.setattr(sample_answers, "say_answers", say)
    optimiser = {"max_steps": 1, "per_device_train_batch_size": 6}
    job = write_run(tmp_path, settings("sft", model, optimiser=optimiser, output={"write_answers": True}), rows=rows)
    assert train_model(job).finished
    tokenizer = AutoTokenizer.from_pretrained(model)
    longest = max(len(tokenizer(row.chosen)["input_ids"]) for row in rows[4:]) + 1  # the mark of the end
    assert allowed == [2 * longest] * 2
    samples = [json.loads(line) for line in (job.run.folder / "samples/samples.jsonl").read_text().splitlines()]
    assert [sample["key"] for sample in samples] == [row.key for row in rows[4:12]]
    assert any(sample["cut"] for sample in samples)
    said, true = (
        [json.loads(line) for line in (job.run.answers / f"{name}.jsonl").read_text().splitlines()]
        for name in ("predictions", "references")
    )
    assert [one["id"] for one in said] == [one["id"] for one in true] == [row.key for row in rows[4:]]
    assert [one["text"] for one in said][:8] == [sample["answer"] for sample in samples]
    assert [one["text"] for one in true] == [row.chosen for row in rows[4:]]
