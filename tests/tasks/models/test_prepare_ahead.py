"""Images are decoded once, in order, here or by threads; what does not decode is dropped."""

from dataclasses import replace

import numpy as np
import pytest

from pairwright.schemas.rows import Dropped, Row
from pairwright.tasks.models import prepare_ahead as module
from pairwright.tasks.models.prepare_ahead import Ready, by_image, in_groups, prepare_ahead
from pairwright.tasks.store.pool import HELPERS
from tests.fixtures.pictures import photograph


def item(number, key=""):
    """Return a row, and an image whose pixels are its number."""
    image = photograph(np.full((2, 3, 3), number, np.uint8), name=f"{number}.png")
    return Row(key=key or str(number), source_key="s", subject="s"), image


def damaged(number, data):
    row, image = item(number)
    return row, replace(image, image=data)


def middle(image):
    return int(image.pixels[1, 1, 0])


def odd_only(row, image):
    return middle(image) if middle(image) % 2 else Dropped(source_key=row.key, reason="even")


@pytest.mark.parametrize("threads", ["0", "2"])
def test_others_prepare_the_same(threads, monkeypatch):
    monkeypatch.setenv(HELPERS, threads)
    items = [item(n) for n in range(50)]
    items[3] = damaged(3, b"no image")

    def prepare(row, image):
        return row.key, middle(image)

    here = list(prepare_ahead(items, prepare, on_gpu=False))
    assert list(prepare_ahead(items, prepare, on_gpu=True, batch=4, ahead=8)) == here
    assert here[3] == Dropped(source_key="3", reason="not an image", detail="3.png: ")


@pytest.mark.parametrize("on_gpu", [False, True])
def test_what_is_prepared_can_be_a_reason_to_drop_the_row(on_gpu):
    items = [item(n) for n in range(3)]
    dropped = [Dropped(source_key=key, reason="even") for key in ("0", "2")]
    results = list(prepare_ahead(items, odd_only, on_gpu=on_gpu, batch=2))
    assert results == [dropped[0], Ready(items[1][0], 1), dropped[1]]


def test_neighbours_about_one_image_decode_it_once(monkeypatch):
    decoded = []
    decode = module.decode_rgb
    monkeypatch.setattr(module, "decode_rgb", lambda data: decoded.append(1) or decode(data))
    items = [item(1, "a"), item(1, "b"), item(2, "c")]
    results = prepare_ahead(items, by_image(middle), on_gpu=False)
    assert [ready.part for ready in results] == [1, 1, 2]
    assert len(decoded) == 2


def test_nothing_is_decoded_before_it_is_asked_for():
    items = [item(1), damaged(2, b"")]
    results = prepare_ahead(items, by_image(middle), on_gpu=False, batch=1)
    assert next(results).part == 1
    assert next(results).reason == "empty file"


def test_groups_are_full_and_the_last_is_what_is_left():
    sizes = []

    def work(group):
        sizes.append(len(group))
        yield from (ready.part for ready in group)

    items, dropped = [item(n) for n in (1, 3, 4, 5, 7, 9)], Dropped(source_key="4", reason="even")
    results = list(in_groups(items, odd_only, work, on_gpu=False, size=2))
    assert results == [1, 3, dropped, 5, 7, 9]
    assert sizes == [2, 2, 1]
    assert list(in_groups([], odd_only, work, on_gpu=False, size=2)) == []
