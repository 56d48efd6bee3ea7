"""Images are decoded once, in order, here or by threads; what does not decode is dropped by
name."""

from dataclasses import replace

import numpy as np
import pytest

from pairwright.schemas.rows import Dropped, ImageRow, Row
from pairwright.tasks.models import prepare_ahead as module
from pairwright.tasks.models.prepare_ahead import Ready, by_image, in_groups, prepare_ahead
from pairwright.tasks.store.pool import HELPERS
from tests.fixtures.pictures import photograph


def image(number: int) -> ImageRow:
    return photograph(np.full((2, 3, 3), number, np.uint8), name=f"{number}.png")


def row(name: str) -> Row:
    return Row(key=name, source_key="s", subject="s")


def middle(seen):
    return int(seen.pixels[1, 1, 0])


def named(row, seen):
    return row.key, middle(seen)


def odd_only(row, seen):
    return middle(seen) if middle(seen) % 2 else Dropped(source_key=row.key, reason="even")


@pytest.mark.parametrize("threads", ["0", "2"])
def test_others_prepare_the_same(threads, monkeypatch):
    monkeypatch.setenv(HELPERS, threads)
    items = [(row(f"row {n}"), image(n)) for n in range(50)]
    items[3] = (items[3][0], replace(items[3][1], image=b"no image"))
    here = list(prepare_ahead(items, named, on_gpu=False))
    assert list(prepare_ahead(items, named, on_gpu=True, batch=4, ahead=8)) == here
    assert here[3] == Dropped(source_key="row 3", reason="not an image", detail="3.png: ")


@pytest.mark.parametrize("on_gpu", [False, True])
def test_what_is_prepared_can_be_a_reason_to_drop_the_row(on_gpu):
    items = [(row(f"row {n}"), image(n)) for n in range(3)]
    dropped = [Dropped(source_key=f"row {n}", reason="even") for n in (0, 2)]
    found = list(prepare_ahead(items, odd_only, on_gpu=on_gpu, batch=2))
    assert found == [dropped[0], Ready(row("row 1"), 1), dropped[1]]


def test_neighbours_about_one_image_decode_it_once(monkeypatch):
    decoded = []
    decode = module.decode_rgb
    monkeypatch.setattr(module, "decode_rgb", lambda data: decoded.append(1) or decode(data))
    items = [(row("a"), image(1)), (row("b"), image(1)), (row("c"), image(2))]
    assert [ready.part for ready in prepare_ahead(items, by_image(middle), on_gpu=False)] == [
        1,
        1,
        2,
    ]
    assert len(decoded) == 2


def test_nothing_is_decoded_before_it_is_asked_for():
    broken = replace(image(2), image=b"")
    results = prepare_ahead(
        [(row("a"), image(1)), (row("b"), broken)], by_image(middle), on_gpu=False, batch=1
    )
    assert next(results).part == 1
    assert next(results).reason == "empty file"


def test_groups_are_full_and_the_last_is_what_is_left():
    items = [(row(f"{n}"), image(n)) for n in (1, 3, 4, 5, 7, 9)]
    sizes = []

    def work(group):
        sizes.append(len(group))
        yield from (one.part for one in group)

    dropped = Dropped(source_key="4", reason="even")
    assert list(in_groups(items, odd_only, work, on_gpu=False, size=2)) == [1, 3, dropped, 5, 7, 9]
    assert sizes == [2, 2, 1]
    assert list(in_groups([], odd_only, work, on_gpu=False, size=2)) == []
