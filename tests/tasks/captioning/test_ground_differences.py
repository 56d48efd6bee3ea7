"""Grounding: each half must be closer to its own image, by the text tower of its vectors."""

import numpy as np
import pytest

from pairwright.flows.pipeline.load_profile import load_profile
from pairwright.schemas import checks
from pairwright.schemas.config import GroundingConfig
from pairwright.schemas.encoder_config import ClipConfig
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import CheckRow, Dropped
from pairwright.tasks.captioning.ground_differences import (
    ground_differences,
    judge_gaps,
    judged_halves,
)
from pairwright.tasks.models.open_clip_embedder import pin_clip
from pairwright.tasks.models.text_scorer import OpenClipTexts
from pairwright.tasks.store.vectors import Vectors
from tests.fixtures.checkpoints import READING_CLIP, write_clip_folder
from tests.fixtures.descriptions import description
from tests.fixtures.graphs import pair_row

PAIR = pair_row("a" * 32, "b" * 32)
BALL, CUBE = "a red ball on a table", "two blue cubes"
BOUND = "(grounding.min_margin=0)"


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = write_clip_folder(tmp_path_factory.mktemp("clip"), architecture=READING_CLIP)
    clip = pin_clip(ClipConfig(checkpoint=str(folder)), download=False)
    return GroundingConfig(enabled=True, clip=clip)


@pytest.fixture(scope="module")
def ball_and_cube(config):
    """Return the vectors of both halves."""
    return OpenClipTexts(config=config.clip).embed((BALL, CUBE))


def written(first, second, **values):
    return description(f"shows {first}", f"has {second}", subject=PAIR.key, **values)


def ground(config, *vectors, row=None, keys=(PAIR.first, PAIR.second)):
    """Ground a description of images with these vectors."""
    keys = np.array([key.encode() for key in keys], dtype="S32")
    norms = np.ones(len(vectors), np.float32)
    spaces = {"clip": Vectors(keys, np.stack(vectors).astype(np.float16), norms)}
    rows, pairs = [row or written(BALL, CUBE)], {PAIR.key: PAIR}
    (outcome,) = ground_differences(rows, config, pairs=pairs, vectors=spaces)
    return outcome


def test_halves_that_fit_their_own_images_pass(config, ball_and_cube):
    """The images' vectors are the halves': at 1 from their own, at their cosine from the other."""
    ball, cube = ball_and_cube
    row = ground(config, ball, cube)
    assert isinstance(row, CheckRow)
    assert row.score == pytest.approx(1 - float(ball @ cube), abs=2e-3)
    assert row.score > 0.05
    assert (row.passed, row.why, row.check) == (True, "", "grounded")
    assert (row.description, row.subject) == (row.source_key, PAIR.key)


def test_one_wrong_half_fails_and_is_named(config, ball_and_cube):
    """The second half is at sqrt((1 + c) / 2) from the first image and at -1 from its own."""
    ball, cube = ball_and_cube
    cosine = float(ball @ cube)
    between = (ball + cube) / np.sqrt(2 + 2 * cosine)
    row = ground(config, between, -cube)
    assert row.score == pytest.approx(-1 - np.sqrt((1 + cosine) / 2), abs=2e-3)
    assert (row.passed, row.why) == (False, f"{checks.SECOND_UNGROUNDED} {BOUND}")
    row = ground(config, -ball, between)
    assert (row.passed, row.why) == (False, f"{checks.FIRST_UNGROUNDED} {BOUND}")


def test_a_description_without_a_difference_has_nothing_to_be_grounded(config, ball_and_cube):
    unchanged = written(BALL, "the same scene, unchanged", no_change=True)
    row = ground(config, *ball_and_cube[::-1], row=unchanged)
    assert (row.passed, row.score, row.why) == (True, 0.0, "")


def test_an_image_without_a_vector_is_a_reason(config, ball_and_cube):
    dropped = ground(config, ball_and_cube[0], keys=["c" * 32])
    assert isinstance(dropped, Dropped)
    assert dropped.reason == "an image has no CLIP vector"


@pytest.mark.parametrize(
    ("gaps", "score", "why"),
    [
        ((0.3, 0.2), 0.2, ""),
        ((0.3, 0.1), 0.1, f"{checks.SECOND_UNGROUNDED} (grounding.min_margin=0.1)"),
        ((-0.3, 0.2), -0.3, f"{checks.FIRST_UNGROUNDED} (grounding.min_margin=0.1)"),
        ((0.0, -0.2), -0.2, f"{checks.BOTH_UNGROUNDED} (grounding.min_margin=0.1)"),
        ((None, 0.2), 0.2, ""),
        ((None, 0.0), 0.0, f"{checks.SECOND_UNGROUNDED} (grounding.min_margin=0.1)"),
        ((0.05, None), 0.05, f"{checks.FIRST_UNGROUNDED} (grounding.min_margin=0.1)"),
        ((None, None), 0.0, checks.NOTHING_AFFIRMED),
    ],
)
def test_what_decides(gaps, score, why):
    config = GroundingConfig(enabled=True, min_margin=0.1)
    assert judge_gaps(written(BALL, CUBE), gaps, config) == (score, why)


LAWN = "a lawn with a dog"


@pytest.mark.parametrize(
    ("first", "second", "judged"),
    [
        (BALL, CUBE, (BALL, CUBE)),
        (LAWN, "no dog", (LAWN, "")),
        (LAWN, "a lawn without a dog", (LAWN, "")),
        (LAWN, "a beach without a dog", (LAWN, "a beach")),
        ("no dog, but a cat", "no cat, but a dog", ("a cat", "a dog")),
        ("no dog", "a scene without a cat", ("", "")),
        pytest.param("a dog", "a dog and a cat", ("a dog", "a dog and a cat"), id="no denial"),
    ],
)
def test_halves_are_judged_by_what_they_affirm(first, second, judged):
    assert judged_halves(written(first, second)) == judged


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("grounding.enabled=true", "embedding.embedders .*clip, .*colour-layout, gradients"),
        ("grounding.clip.model=RN50", "grounding.clip"),
    ],
)
def test_a_profile_that_cannot_be_grounded_is_refused(setting, message):
    with pytest.raises(ConfigError, match=message):
        load_profile("scenes", [setting])


def test_a_profile_with_clip_can_be_grounded():
    assert load_profile("laptop", ["grounding.enabled=true"]).grounding.enabled
