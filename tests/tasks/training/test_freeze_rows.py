"""Rows that are mixed into those of a run: which, how often, from where."""

from collections import Counter
from dataclasses import replace

import pytest

from pairwright.schemas.errors import TrainingError
from pairwright.schemas.rows import Dropped, Turn
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training.freeze_rows import (
    FrozenRows,
    Needs,
    check_frozen_parts,
    draw_rows,
    mix_rows,
    write_rows,
)
from tests.fixtures.preferences_to_train import preference
from tests.fixtures.runs_to_train import preferences, write_run

NEEDS = Needs(every_answer=True)
OTHERS = [preference(100 + n, images=n % 3) for n in range(60)]


def mixed_run(root, name):
    """Write a run, mix 150 of the others into it, and return its job and its first keys."""
    job = write_run(root, TrainConfig(objective="sft"), name=name)
    first = job.frozen_rows("train").keys()
    file = job.run.folder / "mixed/0.arrow"
    assert not write_rows(OTHERS, file, needs=NEEDS, split="train", limit=1000)
    assert mix_rows(job.run.rows, file, Folder("unused"), rows=150, seed=3) == 60
    return job, first


def test_mixed_rows_are_drawn_and_come_again_only_when_each_has_come(tmp_path):
    job, first = mixed_run(tmp_path, "run")
    rows = job.frozen_rows("train")
    keys = rows.keys()
    assert keys[: len(first)] == first
    drawn = keys[len(first) :]
    assert len(set(drawn[:60])) == 60
    assert drawn[:60] != [row.key for row in OTHERS]
    assert set(Counter(drawn).values()) == {2, 3}
    by_key = {row.key: row for row in OTHERS}
    for number in (len(first), len(first) + 59, len(keys) - 1):
        assert rows.read(number) == by_key[keys[number]]
    assert rows.read(0).key == first[0]
    check_frozen_parts(job.dataset, job.run.rows)
    again, _ = mixed_run(tmp_path, "again")
    assert again.frozen_rows("train").keys() == keys


def test_rows_that_cannot_be_learned_are_passed_over(tmp_path):
    held_out = OTHERS[2].image_keys[0]
    marked = replace(OTHERS[0], prompt=(Turn(role="user", text="<image>\nWhat?"),))
    dropped = Dropped(source_key="mix.json#4", reason="missing file", detail="gone.png")
    rows = [dropped, marked, OTHERS[2], OTHERS[3], OTHERS[4], marked]
    file = tmp_path / "mixed/0.arrow"
    needs = replace(NEEDS, held_out=frozenset({held_out}))
    refused = write_rows(rows, file, needs=needs, split="train", limit=2)
    assert [(row.key, row.reason, row.detail) for row in refused] == [
        ("mix.json#4", "missing file", "gone.png"),
        (marked.key, "images do not match the prompt", "1 places for 0 images"),
        (OTHERS[2].key, "shows a held-out image", held_out),
    ]
    frozen = FrozenRows(folder=Folder(str(tmp_path)), file=str(file), split="train")
    assert [frozen.read(number) for number in range(len(frozen))] == OTHERS[3:5]


def test_rows_are_drawn_with_their_hardness_as_weight(tmp_path):
    """As many as before, of the split alone; a row that a blind model answers right never."""
    rows = preferences(200, held_out=3)
    job = write_run(tmp_path, TrainConfig(objective="dpo"), rows=rows)
    keys = job.frozen_rows("train").keys()
    hardness = {key: (0.0, 0.2, 0.8)[number % 3] for number, key in enumerate(keys)}
    held_out = job.frozen_rows("validation").keys()
    draw_rows(job.run.rows, "train", hardness, seed=1)
    assert job.frozen_rows("validation").keys() == held_out
    drawn = job.frozen_rows("train").keys()
    counts = Counter(hardness[key] for key in drawn)
    assert len(drawn) == len(keys)
    assert set(counts) == {0.2, 0.8}
    assert 0.7 < counts[0.8] / len(keys) < 0.9
    with pytest.raises(TrainingError, match="sure of all"):
        draw_rows(job.run.rows, "train", dict.fromkeys(keys, 0.0), seed=1)
