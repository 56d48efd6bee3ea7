"""The answers that a finished run shows."""

import json
from dataclasses import replace
from pathlib import Path

from schemas.rows import Turn
from tasks.training.train_model import train_model
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
    config = settings("dpo", model, optimiser={"steps": 1}, model={"longest": 800})
    job = write_run(tmp_path, config, rows=[odd.get(place, row) for place, row in enumerate(rows)])
    assert train_model(job).finished
    lines = (job.run.folder / "samples/samples.jsonl").read_text().splitlines()
    assert [json.loads(line)["key"] for line in lines] == [rows[8].key, rows[9].key]
