"""A state changes light, focus or framing, and moves masks as it moves pixels."""

from collections import Counter

import numpy as np
import pytest
import skimage.data

from pairwright.tasks.planting.photo_state import (
    SHARES,
    PhotoState,
    draw_other_state,
    draw_state,
)

PHOTOGRAPH = skimage.data.coffee()


@pytest.mark.parametrize(("kind", "brighter"), [("dim", False), ("bright", True)])
def test_light_changes_all_channels(kind, brighter) -> None:
    changed = PhotoState(kind).apply(PHOTOGRAPH)
    before = PHOTOGRAPH.mean(axis=(0, 1))
    after = changed.mean(axis=(0, 1))
    assert ((after > before) == brighter).all()


@pytest.mark.parametrize(("kind", "redder"), [("warm", True), ("cool", False)])
def test_a_tint_changes_red_against_blue(kind, redder) -> None:
    before = PHOTOGRAPH.mean(axis=(0, 1))
    after = PhotoState(kind).apply(PHOTOGRAPH).mean(axis=(0, 1))
    assert (after[0] / after[2] > before[0] / before[2]) == redder


def test_a_soft_focus_takes_detail_and_no_light() -> None:
    soft = PhotoState("soft").apply(PHOTOGRAPH)
    detail = np.abs(np.diff(soft.astype(int), axis=1)).mean()
    assert detail < 0.7 * np.abs(np.diff(PHOTOGRAPH.astype(int), axis=1)).mean()
    assert abs(soft.mean() - PHOTOGRAPH.mean()) < 1


def test_a_closer_view_moves_masks_as_it_moves_pixels() -> None:
    state = PhotoState("close", (0.04, 0.06, 0.9))
    photograph = np.zeros((200, 300, 3), np.uint8)
    photograph[80:120, 100:160] = 255
    mask = photograph[..., 0] == 255
    moved = state.move(mask)
    bright = state.apply(photograph)[..., 0] >= 128
    assert (moved != bright).mean() < 0.001
    # (100 - 12) / 0.9, (160 - 12) / 0.9; (80 - 12) / 0.9, (120 - 12) / 0.9
    rows, columns = np.nonzero(moved)
    assert columns.min() == pytest.approx(98, abs=1)
    assert columns.max() == pytest.approx(164, abs=1)
    assert rows.min() == pytest.approx(76, abs=1)
    assert rows.max() == pytest.approx(120, abs=1)


def test_the_plain_state_changes_nothing() -> None:
    assert PhotoState().apply(PHOTOGRAPH) is PHOTOGRAPH
    mask = PHOTOGRAPH[..., 0] > 100
    assert PhotoState("dim").move(mask) is mask


def test_states_are_drawn_by_their_shares() -> None:
    rng = np.random.default_rng(0)
    states = [draw_state(rng) for _ in range(2000)]
    counts = Counter(state.kind for state in states)
    for kind, share in SHARES.items():
        assert counts[kind] / 2000 == pytest.approx(share, abs=0.03)
    others = [draw_other_state(rng, state) for state in states]
    pairs = zip(states, others, strict=True)
    assert all((state.kind == "plain") != (other.kind == "plain") for state, other in pairs)
