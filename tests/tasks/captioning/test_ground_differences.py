"""Grounding: each half must be closer to its own image, by the text tower that belongs to the
images' vectors."""

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


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = write_clip_folder(tmp_path_factory.mktemp("clip"), architecture=READING_CLIP)
    return GroundingConfig(
        enabled=True, clip=pin_clip(ClipConfig(checkpoint=str(folder)), download=False)
    )


@pytest.fixture(scope="module")
def embed(config):
    scorer = OpenClipTexts(config=config.encoder)
    return lambda *texts: scorer.embed(texts)


def space(first, second):
    """Return the vectors of the pair's two images."""
    keys = np.array([PAIR.first.encode(), PAIR.second.encode()], dtype="S32")
    return {
        "clip": Vectors(keys, np.stack([first, second]).astype(np.float16), np.ones(2, np.float32))
    }


def ground(config, images, *rows, margin=0.0):
    config = config.model_copy(update={"min_margin": margin})
    return list(ground_differences(rows, config, pairs={PAIR.key: PAIR}, vectors=space(*images)))


def said(first, second, **values):
    return description(f"shows {first}", f"has {second}", subject=PAIR.key, **values)


def test_halves_that_fit_their_own_images_pass(config, embed):
    ball, cube = embed(BALL, CUBE)
    [row] = ground(config, (ball, cube), said(BALL, CUBE))
    assert isinstance(row, CheckRow)
    # The images' vectors are those of the halves: each is at 1 from its own and at their cosine
    # from the other.
    assert row.score == pytest.approx(1 - float(ball @ cube), abs=2e-3)
    assert row.score > 0.05
    assert (row.passed, row.why, row.check, row.description) == (
        True,
        "",
        "grounded",
        row.source_key,
    )
    assert row.subject == PAIR.key


def test_one_wrong_half_fails_and_is_named(config, embed):
    ball, cube = embed(BALL, CUBE)
    cosine = float(ball @ cube)
    between = (ball + cube) / np.sqrt(2 + 2 * cosine)
    [row] = ground(config, (between, -cube), said(BALL, CUBE))
    # The second half is at sqrt((1 + c) / 2) from the first image and at -1 from its own.
    assert row.score == pytest.approx(-1 - np.sqrt((1 + cosine) / 2), abs=2e-3)
    assert (row.passed, row.why) == (False, f"{checks.SECOND_UNGROUNDED} (grounding.min_margin=0)")
    [row] = ground(config, (-ball, between), said(BALL, CUBE))
    assert (row.passed, row.why) == (False, f"{checks.FIRST_UNGROUNDED} (grounding.min_margin=0)")


@pytest.mark.parametrize(
    ("gaps", "score", "why"),
    [
        ((0.3, 0.2), 0.2, ""),
        ((0.3, 0.1), 0.1, checks.SECOND_UNGROUNDED),
        ((-0.3, 0.2), -0.3, checks.FIRST_UNGROUNDED),
        ((0.0, -0.2), -0.2, checks.BOTH_UNGROUNDED),
        ((None, 0.2), 0.2, ""),
        ((None, 0.0), 0.0, checks.SECOND_UNGROUNDED),
        ((0.05, None), 0.05, checks.FIRST_UNGROUNDED),
        ((None, None), 0.0, checks.NOTHING_AFFIRMED),
    ],
)
def test_what_decides(gaps, score, why):
    bound = " (grounding.min_margin=0.1)" * (why not in ("", checks.NOTHING_AFFIRMED))
    assert judge_gaps(said(BALL, CUBE), gaps, GroundingConfig(enabled=True, min_margin=0.1)) == (
        score,
        why + bound,
    )


@pytest.mark.parametrize(
    ("first", "second", "judged"),
    [
        (BALL, CUBE, (BALL, CUBE)),
        ("a lawn with a dog", "no dog", ("a lawn with a dog", "")),
        ("a lawn with a dog", "a lawn without a dog", ("a lawn with a dog", "")),
        ("a lawn with a dog", "a beach without a dog", ("a lawn with a dog", "a beach")),
        ("no dog, but a cat", "no cat, but a dog", ("a cat", "a dog")),
        ("no dog", "a scene without a cat", ("", "")),
        (
            "a dog",
            "a dog and a cat",
            ("a dog", "a dog and a cat"),
        ),  # denies nothing, so it is judged
    ],
)
def test_halves_are_judged_by_what_they_affirm(first, second, judged):
    assert judged_halves(said(first, second)) == judged


def test_a_description_without_a_difference_has_nothing_to_be_grounded(config, embed):
    ball, cube = embed(BALL, CUBE)
    [row] = ground(config, (cube, ball), said(BALL, "the same scene, unchanged", no_change=True))
    assert (row.passed, row.score, row.why) == (True, 0.0, "")
    (ball,) = embed(BALL)
    lonely = {
        "clip": Vectors(
            np.array([b"c" * 32]), ball[None].astype(np.float16), np.ones(1, np.float32)
        )
    }
    [row] = ground_differences([said(BALL, CUBE)], config, pairs={PAIR.key: PAIR}, vectors=lonely)
    assert isinstance(row, Dropped)
    assert row.reason == "an image has no CLIP vector"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["grounding.enabled=true"], "embedding.embedders .*clip, .*colour-layout, gradients"),
        (["grounding.clip.model=RN50"], "grounding.clip"),
    ],
)
def test_a_profile_that_cannot_be_grounded_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        load_profile("scenes", settings)
    assert load_profile("laptop", ["grounding.enabled=true"]).grounding.enabled
