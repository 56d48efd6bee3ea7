"""Preference rows: what is chosen, what is rejected, in which order, and when there is none."""

from dataclasses import replace
from io import BytesIO
from typing import get_args

import numpy as np
import pytest
from PIL import Image

from pairwright.prompts import load_wordings
from pairwright.schemas.claims import CLAIMS, Claim, Selector
from pairwright.schemas.config import PreferencesConfig, RejectedBy
from pairwright.schemas.removing import SEVERAL
from pairwright.schemas.rows import (
    MAKERS,
    CheckRow,
    DifferenceRow,
    Dropped,
    ExpectedRow,
    PreferenceRow,
    RejectedTextRow,
    SplitRow,
    Turn,
    make_key,
)
from pairwright.tasks.images.decode import decode_rgb
from pairwright.tasks.preferences.build_preferences import NOT_MADE, build_preferences, reject_image
from pairwright.tasks.texts.say_claims import KINDS
from tests.fixtures import removals
from tests.fixtures.graphs import pair_row
from tests.fixtures.removals import png
from tests.fixtures.rows import row_of

IMAGES = sorted(
    (removals.noise_row(seed, size=(48, 40), group="w") for seed in (0, 1)), key=lambda row: row.key
)
FIRST, SECOND = (row.key for row in IMAGES)
SHOWN = tuple(row.image for row in IMAGES)
PAIR = pair_row(FIRST, SECOND)
DIFFERENCE = row_of(DifferenceRow, source=PAIR.key, text="chosen text")
SPLIT = row_of(SplitRow, source=PAIR.key, component="c", split="test")
BALL, BLOCK = removals.element_of(FIRST, "red metal ball"), (8, 8, 24, 32)
REMOVAL = removals.removal_of(IMAGES[0], BALL, BLOCK)
REMOVALS = {BALL.key: REMOVAL}
SMALL = replace(REMOVAL, patch=removals.png(np.zeros((3, 3, 3), np.uint8)))
REJECTION = removals.rejection_of(PAIR.key, BALL)
NO_REJECTION = replace(
    REJECTION, key=make_key("none"), maker="", element="", removal_scores=(), why="no element"
)
CROP = replace(NO_REJECTION, key=make_key("crop"), maker="crop", side=1, window=(4, 4, 24, 20))


def rejected(maker, score, text=""):
    about = {"text": text or f"{maker} text", "note": f"by {maker}", "description": DIFFERENCE.key}
    return row_of(
        RejectedTextRow, maker, source=PAIR.key, subject=PAIR.key, maker=maker, score=score, **about
    )


def table(*rows):
    return {PAIR.key: rows}


EVERYTHING = {
    "splits": {PAIR.key: SPLIT},
    "images": {row.key: row for row in IMAGES},
    "differences": table(DIFFERENCE),
    "retrieved": table(rejected("retrieved", 0.5)),
    "swapped": table(rejected("swapped", 0.9)),
    "edited": table(rejected("edited", 0.7)),
    "rejections": {PAIR.key: REJECTION},
    "removals": REMOVALS,
}
NO_TEXTS = {"retrieved": {}, "swapped": {}, "edited": {}}
HARDEST = PreferencesConfig(rejected="hardest")


def build(config=HARDEST, **changes):
    (row,) = build_preferences([PAIR], config, **{**EVERYTHING, **changes})
    return row


def makers_of(row):
    return [row.rejected_maker, *(negative.maker for negative in row.negatives)]


def test_a_preference_holds_everything_that_was_made():
    row = build()
    assert (row.chosen, row.rejected) == ("chosen text", "swapped text")
    assert row.rejected_note == "by swapped"
    assert makers_of(row) == ["swapped", "edited", "retrieved"]
    assert [negative.score for negative in row.negatives] == [0.7, 0.5]
    assert row.images == SHOWN
    altered, other = row.rejected_images
    assert np.array_equal(decode_rgb(altered), removals.without_block(IMAGES[0], BLOCK))
    assert (other, row.rejected_image_maker) == (SHOWN[1], "removal")
    assert row.removal_scores == REJECTION.removal_scores
    assert (row.split, row.component, row.licences) == ("test", "c", ("CC0-1.0", "CC0-1.0"))
    assert row.prompt[0].role == "user"


@pytest.mark.parametrize(
    ("config", "changes", "makers"),
    [
        pytest.param(
            *("own", {"sampled": table(rejected("sampled", 0.3))}),
            ["sampled", "swapped", "edited", "retrieved"],
            id="a model's own text before closer ones",
        ),
        pytest.param("own", {}, ["swapped", "edited", "retrieved"], id="no text of its own"),
        pytest.param("retrieved", {}, ["retrieved", "swapped", "edited"], id="a maker"),
        pytest.param(
            *(
                "hardest",
                {"counterfactual": table(rejected("counterfactual", 0.95, "swapped text"))},
            ),
            ["counterfactual", "edited", "retrieved"],
            id="the same text of two makers",
        ),
    ],
)
def test_the_first_rejected_text_is_the_closest(config, changes, makers):
    assert makers_of(build(PreferencesConfig(rejected=config), **changes)) == makers


@pytest.mark.parametrize("rejections", [{PAIR.key: NO_REJECTION}, None])
@pytest.mark.parametrize(("texts", "text"), [({}, "swapped text"), (NO_TEXTS, "")])
def test_without_a_rejection_no_image_is_rejected(rejections, texts, text):
    row = build(rejections=rejections, **texts)
    assert (row.rejected_images, row.removal_scores, row.rejected_image_maker) == ((), (), "")
    assert (row.chosen, row.rejected, len(row.negatives)) == ("chosen text", text, 2 * bool(text))


def test_every_maker_may_come_first():
    assert set(get_args(RejectedBy)) == {"drawn", "hardest", "own", *MAKERS}


def test_an_image_that_the_prior_expects_takes_the_place_of_a_removal():
    patch = png(np.full((4, 6, 3), 200, np.uint8))
    expected = row_of(ExpectedRow, source=PAIR.key, side=1, window=(10, 20, 16, 24), patch=patch)
    row = build(expected={PAIR.key: expected})
    assert (row.rejected_image_maker, row.removal_scores) == ("expected", ())
    assert row.rejected_images[0] == SHOWN[0]
    pixels = decode_rgb(row.rejected_images[1])
    assert (pixels[20:24, 10:16] == 200).all()
    assert np.array_equal(pixels[:20], decode_rgb(SHOWN[1])[:20])


DAMAGED = {FIRST: replace(IMAGES[0], image=SHOWN[0][:-40]), SECOND: IMAGES[1]}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"differences": {}}, "no difference description"),
        ({"rejections": {}}, "no rejected image"),
        ({"images": DAMAGED}, "truncated image"),
        ({"removals": {}}, "its rejected image cannot be made"),
    ],
)
def test_pairs_that_give_none_say_why(changes, reason):
    dropped = build(**changes)
    assert isinstance(dropped, Dropped)
    assert (dropped.source_key, dropped.reason) == (PAIR.key, reason)


def test_each_text_about_a_pair_has_what_was_made_for_it():
    spoken = row_of(DifferenceRow, "said", source=PAIR.key, text="the dog ran off", model="given")
    theirs = replace(rejected("retrieved", 0.4, "the cat ran off"), description=spoken.key)
    tables = {
        "differences": table(spoken, DIFFERENCE),
        "retrieved": table(theirs, rejected("retrieved", 0.5)),
    }
    first, second = build_preferences([PAIR], HARDEST, **EVERYTHING | tables)
    assert (first.kind, first.chosen_model, first.chosen) == ("given", "given", "the dog ran off")
    assert (first.rejected, first.negatives) == ("the cat ran off", ())
    wordings = load_wordings("ask_difference").kinds["given"]
    assert first.prompt[0].text in [wording.text for wording in wordings]
    assert second.chosen == "chosen text"
    assert makers_of(second) == ["swapped", "edited", "retrieved"]


def test_the_key_changes_with_what_is_shown():
    changes = [
        {},
        {"swapped": table(rejected("swapped", 0.1))},
        {"swapped": {}},
        {"rejections": {PAIR.key: NO_REJECTION}},
        {"rejections": {PAIR.key: CROP}},
        {"rejections": None},
        {"differences": table(replace(DIFFERENCE, text="other"))},
        {"splits": {PAIR.key: replace(SPLIT, split="train")}},
    ]
    assert len({build(**change).key for change in changes}) == len(changes)


def test_drawn_makers_are_met_equally_often():
    pairs = [replace(PAIR, key=make_key(number), subject=make_key(number)) for number in range(600)]
    by_pair = ("splits", "differences", "retrieved", "swapped", "edited")
    tables = {name: {pair.key: EVERYTHING[name][PAIR.key] for pair in pairs} for name in by_pair}
    tables = {**EVERYTHING, **tables, "rejections": None}
    config = PreferencesConfig(rejected="drawn")
    rows = list(build_preferences(pairs, config, **tables))
    makers = [row.rejected_maker for row in rows]
    assert all(150 < makers.count(maker) < 250 for maker in ("retrieved", "swapped", "edited"))
    assert rows == list(build_preferences(pairs, config, **tables))


def test_what_a_judge_found_right_is_not_rejected():
    created = {name: rejected(name, 0.9) for name in ("swapped", "retrieved")}
    verdicts = {"swapped": True, "retrieved": False}
    checks = [
        row_of(
            CheckRow,
            name,
            source=created[name].key,
            subject=PAIR.key,
            description=created[name].key,
            check="judged",
            passed=passed,
        )
        for name, passed in verdicts.items()
    ]
    tables = {name: table(row) for name, row in created.items()} | {"edited": {}}
    assert makers_of(build(judged_rejected=table(*checks), **tables)) == ["retrieved"]


def claims_of(*colours):
    """Return the claims that each image has a ball, of these colours."""
    claims = tuple(
        Claim(side=side, kind="exists", selector=Selector(shape="ball", colour=colour))
        for side, colour in enumerate(colours)
    )
    return CLAIMS.dump_json(claims).decode()


GREEN = claims_of("red", "green")


def preference_of(number, groups=("w", "w"), claims=GREEN):
    """Return the preference of a ball that turns blue, and a text with other claims."""
    pair = replace(PAIR, key=make_key(number), subject=make_key(number))
    (row,) = build_preferences(
        [pair],
        HARDEST,
        images={
            row.key: replace(row, group=group) for row, group in zip(IMAGES, groups, strict=True)
        },
        rejections=None,
        splits={pair.key: SPLIT},
        differences={pair.key: (replace(DIFFERENCE, claims=claims_of("red", "blue")),)},
        edited={pair.key: (replace(rejected("edited", 0.7), claims=claims),)},
    )
    return row


def test_texts_are_of_the_kind_that_the_prompt_asks_for():
    rows = [preference_of(number) for number in range(100)]
    kinds = {row.kind: row for row in rows}
    assert set(kinds) == set(KINDS)
    for kind, row in kinds.items():
        wordings = load_wordings("ask_difference").kinds["ask" if kind == "template" else kind]
        assert row.prompt[0].text in [wording.text for wording in wordings]
        assert row.claims == claims_of("red", "blue")
        assert row.rejected_claims == GREEN
    template = kinds["template"]
    assert (template.chosen, template.rejected) == ("chosen text", "edited text")
    assert template.description == ""
    for kind in ("changes", "list", "short"):
        assert kinds[kind].description == "chosen text"
        assert kinds[kind].rejected == kinds[kind].chosen.replace("blue", "green")
    assert kinds["list"].chosen.startswith("1. ")
    assert kinds["sentences"].chosen.count(".") == 2
    assert rows[:5] == [preference_of(number) for number in range(5)]


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        pytest.param({"groups": ("v", "w")}, {"template", "sentences"}, id="two groups"),
        pytest.param({"groups": ("", "")}, {"template", "sentences"}, id="no group"),
        pytest.param({"claims": "[]"}, {"template"}, id="unknown claims"),
        pytest.param({"claims": claims_of("red", "blue")}, {"template"}, id="the same claims"),
    ],
)
def test_kinds_that_do_not_fit_are_not_drawn(changes, kinds):
    assert {preference_of(number, **changes).kind for number in range(60)} == kinds


def crop(*window):
    return replace(CROP, side=0, window=window)


def test_a_crop_is_as_large_as_its_image():
    cropped, other = reject_image(SHOWN, crop(8, 16, 40, 32), {})
    assert other == SHOWN[1]
    pixels = np.asarray(Image.open(BytesIO(cropped)))
    assert pixels.shape == (40, 48, 3)
    # Noise in blocks of 8: those of the window are 12 wide and 20 high now, with the same middles.
    before = np.asarray(Image.open(BytesIO(SHOWN[0])))
    assert np.array_equal(pixels[10::20, 6::12], before[20:32:8, 12:40:8])


@pytest.mark.parametrize(
    ("images", "rejection", "removal", "reason"),
    [
        pytest.param((SHOWN[0][:-50], SHOWN[1]), REJECTION, REMOVAL, "truncated image", id="cut"),
        pytest.param((b"", SHOWN[1]), REJECTION, REMOVAL, "empty file", id="an empty file"),
        pytest.param(SHOWN, REJECTION, None, NOT_MADE, id="no removal"),
        pytest.param(SHOWN, REJECTION, SMALL, NOT_MADE, id="a small patch"),
        pytest.param(
            SHOWN, REJECTION, replace(REMOVAL, patch=b"no image"), NOT_MADE, id="a damaged patch"
        ),
        pytest.param(SHOWN, crop(0, 0, 49, 10), None, NOT_MADE, id="outside"),
    ],
)
def test_what_cannot_be_made_is_a_reason(images, rejection, removal, reason):
    dropped = reject_image(images, rejection, {BALL.key: removal} if removal else {})
    assert isinstance(dropped, Dropped)
    assert (dropped.source_key, dropped.reason) == (PAIR.key, reason)


GIVEN = row_of(
    PreferenceRow,
    "A dog.",
    source="item",
    subject=FIRST,
    prompt=(Turn(role="user", text="What is it?"),),
    images=SHOWN[:1],
    image_keys=(FIRST,),
    chosen="A dog.",
    rejected="A cat.",
    rejected_maker="given",
)
GIVEN_REJECTION = removals.rejection_of(GIVEN.key, BALL)


def reject(row, *rejections):
    tables = {"rejections": dict(zip([row.key], rejections, strict=False)), "removals": REMOVALS}
    (row,) = build_preferences([row], PreferencesConfig(), **tables)
    return row


def test_of_a_given_preference_the_image_is_altered_alone():
    row = reject(GIVEN, GIVEN_REJECTION)
    (image,) = row.rejected_images
    assert np.array_equal(decode_rgb(image), removals.without_block(IMAGES[0], BLOCK))
    assert row == replace(
        GIVEN,
        key=row.key,
        source_key=GIVEN.key,
        rejected_images=(image,),
        removal_scores=GIVEN_REJECTION.removal_scores,
        rejected_image_maker="removal",
    )


@pytest.mark.parametrize(
    ("row", "rejections", "reason"),
    [
        (GIVEN, [], "no rejected image"),
        (replace(GIVEN, image_keys=(FIRST, FIRST)), [], SEVERAL),
        (replace(GIVEN, images=(SHOWN[0][:-40],)), [GIVEN_REJECTION], "truncated image"),
    ],
)
def test_a_given_preference_without_one_says_why(row, rejections, reason):
    dropped = reject(row, *rejections)
    assert isinstance(dropped, Dropped)
    assert (dropped.source_key, dropped.reason) == (GIVEN.key, reason)


def test_without_rejections_a_given_preference_stays_as_it_is():
    (row,) = build_preferences([GIVEN], PreferencesConfig())
    assert row == replace(GIVEN, source_key=GIVEN.key)
