"""Rows that are mixed into those of a run: which, how often, from where."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

from pairwright.schemas.rows import Dropped, Turn
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training.freeze_rows import (
    FrozenRows,
    Needs,
    check_parts,
    mix_rows,
    write_rows,
)
from tests.fixtures.preferences_to_train import preference
from tests.fixtures.runs_to_train import write_run

CONFIG = TrainConfig(objective="sft")
NEEDS = Needs(every_answer=True)
OTHERS = [preference(100 + n, images=n % 3) for n in range(60)]


def test_mixed_rows_are_drawn_and_come_again_only_when_each_has_come(tmp_path: Path) -> None:
    job = write_run(tmp_path, CONFIG)
    own, file = (
        FrozenRows(folder=job.dataset, file=str(job.run.rows), split="train"),
        job.run.folder / "mixed/0.arrow",
    )
    before = own.keys()
    assert not write_rows(OTHERS, file, needs=NEEDS, split="train", limit=1000)
    assert mix_rows(job.run.rows, file, Folder("unused"), rows=150, seed=3) == 60
    keys = own.keys()
    assert keys[: len(before)] == before
    drawn = keys[len(before) :]
    assert len(set(drawn[:60])) == 60
    assert drawn[:60] != [row.key for row in OTHERS]
    assert set(Counter(drawn).values()) == {2, 3}
    again = write_run(tmp_path, CONFIG, name="again")
    write_rows(OTHERS, again.run.folder / "mixed/0.arrow", needs=NEEDS, split="train", limit=1000)
    mix_rows(again.run.rows, again.run.folder / "mixed/0.arrow", Folder("unused"), rows=150, seed=3)
    assert FrozenRows(folder=again.dataset, file=str(again.run.rows), split="train").keys() == keys

    by_key = {row.key: row for row in OTHERS}
    for place in (len(before), len(before) + 59, len(keys) - 1):
        row = own.read(place)
        assert row == by_key[row.key]
    assert own.read(0).key == before[0]
    check_parts(job.dataset, job.run.rows)


def test_rows_that_cannot_be_learned_are_passed_over(tmp_path: Path) -> None:
    shown = OTHERS[2].image_keys[0]
    needs = replace(NEEDS, held_out=frozenset({shown}))
    marked = replace(OTHERS[0], prompt=(Turn(role="user", text="<image>\nWhat?"),))
    dropped = Dropped(source_key="mix.json#4", reason="missing file", detail="gone.png")
    rows = [dropped, marked, OTHERS[2], OTHERS[3], OTHERS[4], marked]
    file = tmp_path / "mixed/0.arrow"
    refused = write_rows(rows, file, needs=needs, split="train", limit=2)
    assert [(one.key, one.reason, one.detail) for one in refused] == [
        ("mix.json#4", "missing file", "gone.png"),
        (marked.key, "images do not match the prompt", "1 places for 0 images"),
        (OTHERS[2].key, "shows a held-out image", shown),
    ]
    found = FrozenRows(folder=Folder(str(tmp_path)), file=str(file), split="train")
    assert [found.read(n) for n in range(len(found))] == OTHERS[3:5]
