"""Preferences that a source brought, with a rejected image beside the rejected text."""

from dataclasses import replace

import numpy as np

from pairwright.schemas.config import PreferencesConfig
from pairwright.schemas.removing import SEVERAL
from pairwright.schemas.rows import Dropped, PreferenceRow, RejectionRow, RemovalScore, Turn, make_key
from pairwright.tasks.preferences.build_preferences import build_preferences
from pairwright.tasks.store.images import decode_rgb
from tests.fixtures.removals import element_of, noise_row, rejection_of, removal_of, without_block
from tests.fixtures.rows import row_of

IMAGE = noise_row(0, size=(48, 40))
BALL, BLOCK = element_of(IMAGE.key, "ball"), (8, 8, 24, 32)
GIVEN = row_of(
    PreferenceRow, "A dog.", source="item", subject=IMAGE.key, prompt=(Turn(role="user", text="What is it?"),),
    images=(IMAGE.image,), image_keys=(IMAGE.key,), chosen="A dog.", rejected="A cat.", rejected_maker="given",
)  # fmt: skip
REJECTION = rejection_of(GIVEN.key, BALL)
SCORE = RemovalScore(removal=BALL.key, tag="ball", side=0, score=0.0, chosen=False, clip=2.5)
NONE = replace(REJECTION, key=make_key("none"), maker="", element="", removal_scores=(SCORE,), why="no removal")


def reject(rejection: RejectionRow | None, row: PreferenceRow = GIVEN) -> PreferenceRow | Dropped:
    rejections = {row.key: rejection} if rejection else {}
    removals = {BALL.key: removal_of(IMAGE, BALL, BLOCK)}
    (made,) = build_preferences([row], PreferencesConfig(), rejections=rejections, removals=removals)
    return made


def test_the_image_without_its_element_is_rejected() -> None:
    row = reject(REJECTION)
    assert isinstance(row, PreferenceRow)
    (image,) = row.rejected_images
    assert np.array_equal(decode_rgb(image), without_block(IMAGE, BLOCK))
    assert (row.removal_scores, row.rejected_image_maker) == (REJECTION.removal_scores, "removal")
    new = {"key": GIVEN.key, "source_key": "item", "rejected_images": (), "removal_scores": ()}
    assert replace(row, **new, rejected_image_maker="") == GIVEN, "all else is as the source gave it"
    assert row.source_key == GIVEN.key


def test_where_nothing_is_rejected_the_scores_are_told() -> None:
    row = reject(NONE)
    assert isinstance(row, PreferenceRow)
    assert (row.rejected_images, row.removal_scores, row.rejected_image_maker) == ((), (SCORE,), "")


def test_a_crop_is_rejected() -> None:
    row = reject(replace(NONE, maker="crop", window=(0, 0, 24, 20)))
    assert isinstance(row, PreferenceRow)
    assert decode_rgb(row.rejected_images[0]).shape == (40, 48, 3)
    assert row.rejected_image_maker == "crop"


def test_the_key_changes_with_what_is_rejected() -> None:
    rows = [reject(REJECTION), reject(NONE), GIVEN]
    assert len({row.key for row in rows if isinstance(row, PreferenceRow)}) == 3


def test_what_has_to_go_says_why() -> None:
    assert reject(None) == Dropped(source_key=GIVEN.key, reason="no rejected image")
    several = replace(GIVEN, image_keys=(IMAGE.key, IMAGE.key))
    assert reject(None, several) == Dropped(source_key=GIVEN.key, reason=SEVERAL)
    damaged = reject(REJECTION, replace(GIVEN, images=(IMAGE.image[:-40],)))
    assert isinstance(damaged, Dropped)
    assert (damaged.source_key, damaged.reason) == (GIVEN.key, "truncated image")


def test_without_rejected_images_it_stays_as_it_is() -> None:
    (made,) = build_preferences([GIVEN], PreferencesConfig())
    assert made == replace(GIVEN, source_key=GIVEN.key)
