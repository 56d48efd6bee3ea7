"""Tests of preference rows: what is chosen, what is rejected, in which order, and when there is
none."""

from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pairwright.prompts import load_wordings
from pairwright.schemas.claims import CLAIMS, Claim, Selector
from pairwright.schemas.config import PreferencesConfig
from pairwright.schemas.removing import SEVERAL
from pairwright.schemas.rows import (
    CheckRow,
    DifferenceRow,
    Dropped,
    PreferenceRow,
    RejectedTextRow,
    RejectionRow,
    SplitRow,
    Turn,
    make_key,
)
from pairwright.tasks.images.decode import decode_rgb
from pairwright.tasks.preferences.build_preferences import NOT_MADE, build_preferences, reject_image
from pairwright.tasks.texts.say_claims import KINDS
from tests.fixtures.graphs import pair_row
from tests.fixtures.removals import (
    element_of,
    noise_row,
    png,
    rejection_of,
    removal_of,
    without_block,
)
from tests.fixtures.rows import row_of

IMAGES = sorted(
    (noise_row(seed, size=(48, 40), group="w") for seed in (0, 1)), key=lambda row: row.key
)
FIRST, SECOND = (row.key for row in IMAGES)
PAIR = pair_row(FIRST, SECOND)


DIFFERENCE = row_of(DifferenceRow, source=PAIR.key, text="chosen text")


def text(maker: str, score: float) -> dict[str, tuple[RejectedTextRow, ...]]:
    about = {"text": f"{maker} text", "maker": maker, "note": f"by {maker}", "score": score}
    return {
        PAIR.key: (row_of(RejectedTextRow, source=PAIR.key, description=DIFFERENCE.key, **about),)
    }


SPLIT = row_of(SplitRow, source=PAIR.key, component="c", split="test")
BALL, BLOCK = element_of(FIRST, "red metal ball"), (8, 8, 24, 32)
REJECTION = rejection_of(PAIR.key, BALL)
NO_REJECTION = replace(
    REJECTION, key=make_key("none"), maker="", element="", removal_scores=(), why="no element"
)
CROP = replace(NO_REJECTION, key=make_key("crop"), maker="crop", side=1, window=(4, 4, 24, 20))
EVERYTHING = {
    "splits": {PAIR.key: SPLIT},
    "images": {row.key: row for row in IMAGES},
    "differences": {PAIR.key: (DIFFERENCE,)},
    "retrieved": text("retrieved", 0.5),
    "swapped": text("swapped", 0.9),
    "edited": text("edited", 0.7),
    "rejections": {PAIR.key: REJECTION},
    "removals": {BALL.key: removal_of(IMAGES[0], BALL, BLOCK)},
}
HARDEST = PreferencesConfig(rejected="hardest")


def build(config: PreferencesConfig = HARDEST, **changes: object) -> PreferenceRow | Dropped:
    (row,) = build_preferences([PAIR], config, **{**EVERYTHING, **changes})
    return row


def test_a_preference_holds_everything_that_was_made() -> None:
    row = build()
    assert isinstance(row, PreferenceRow)
    assert (row.chosen, row.rejected, row.rejected_maker, row.rejected_note) == (
        "chosen text",
        "swapped text",
        "swapped",
        "by swapped",
    )
    assert [(n.maker, n.score) for n in row.negatives] == [("edited", 0.7), ("retrieved", 0.5)]
    assert row.images == tuple(image.image for image in IMAGES)
    altered, kept = row.rejected_images
    assert np.array_equal(decode_rgb(altered), without_block(IMAGES[0], BLOCK))
    assert (kept, row.rejected_image_maker) == (IMAGES[1].image, "removal")
    assert row.removal_scores == REJECTION.removal_scores
    assert (row.split, row.component, row.licences) == ("test", "c", ("CC0-1.0", "CC0-1.0"))
    assert row.prompt[0].role == "user"


def test_what_a_model_wrote_itself_comes_before_closer_texts() -> None:
    """The closest is swapped (0.9); without a sample it is the closest of the others."""
    for changes, wanted in (({"sampled": text("sampled", 0.3)}, ["sampled"]), ({}, [])):
        row = build(PreferencesConfig(rejected="own"), **changes)
        assert isinstance(row, PreferenceRow)
        assert [row.rejected_maker, *(one.maker for one in row.negatives)] == [
            *wanted,
            "swapped",
            "edited",
            "retrieved",
        ]


@pytest.mark.parametrize("tables", [{"rejections": {PAIR.key: NO_REJECTION}}, {"rejections": None}])
def test_without_a_rejection_the_texts_are_rejected_alone(tables: dict[str, object]) -> None:
    row = build(**tables)
    assert isinstance(row, PreferenceRow)
    assert (row.rejected_images, row.removal_scores, row.rejected_image_maker) == ((), (), "")
    assert row.rejected


NO_TEXTS = {"retrieved": {}, "swapped": {}, "edited": {}}
DAMAGED = {FIRST: replace(IMAGES[0], image=IMAGES[0].image[:-40]), SECOND: IMAGES[1]}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"differences": {}}, "no difference description"),
        ({"rejections": {}}, "no rejected image"),  # it was dropped, or is not made yet
        ({"images": DAMAGED}, "truncated image"),
        ({"removals": {}}, "its rejected image cannot be made"),
    ],
)
def test_pairs_that_give_none_say_why(changes: dict[str, object], reason: str) -> None:
    row = build(**changes)
    assert isinstance(row, Dropped)
    assert (row.source_key, row.reason) == (PAIR.key, reason)


@pytest.mark.parametrize("rejection", [{PAIR.key: NO_REJECTION}, None])
def test_a_row_may_have_nothing_to_reject(rejection: object) -> None:
    row = build(**NO_TEXTS, rejections=rejection)
    assert isinstance(row, PreferenceRow)
    assert (row.chosen, row.rejected, row.negatives, row.rejected_images) == (
        "chosen text",
        "",
        (),
        (),
    )


def test_each_of_several_texts_about_a_pair_has_what_was_made_for_it() -> None:
    said = row_of(DifferenceRow, "said", source=PAIR.key, text="the dog ran off", model="given")
    (theirs,) = text("retrieved", 0.4)[PAIR.key]
    theirs = replace(theirs, key=make_key("theirs"), description=said.key, text="the cat ran off")
    made = {
        **EVERYTHING,
        "differences": {PAIR.key: (said, DIFFERENCE)},
        "retrieved": {PAIR.key: (theirs, *text("retrieved", 0.5)[PAIR.key])},
    }
    first, second = build_preferences([PAIR], HARDEST, **made)
    assert isinstance(first, PreferenceRow)
    assert isinstance(second, PreferenceRow)
    assert (first.kind, first.chosen_model, first.chosen) == ("given", "given", "the dog ran off")
    assert (first.rejected, first.negatives) == ("the cat ran off", ())
    assert first.prompt[0].text in [
        wording.text for wording in load_wordings("ask_difference").kinds["given"]
    ]
    assert (second.chosen, second.rejected, len(second.negatives)) == (
        "chosen text",
        "swapped text",
        2,
    )


def test_the_key_changes_with_what_is_shown() -> None:
    changes: list[dict[str, object]] = [
        {},
        {"swapped": text("swapped", 0.1)},
        {"swapped": {}},
        {"rejections": {PAIR.key: NO_REJECTION}},
        {"rejections": {PAIR.key: CROP}},
        {"rejections": None},
        {"differences": {PAIR.key: (replace(DIFFERENCE, text="other"),)}},
        {"splits": {PAIR.key: replace(SPLIT, split="train")}},
    ]
    rows = [build(**change) for change in changes]
    assert len({row.key for row in rows if isinstance(row, PreferenceRow)}) == len(changes)


def test_drawn_makers_are_met_equally_often() -> None:
    pairs = [replace(PAIR, key=make_key(number), subject=make_key(number)) for number in range(600)]
    tables = {
        name: {pair.key: table[PAIR.key] for pair in pairs}
        for name, table in EVERYTHING.items()
        if name not in ("images", "removals", "rejections")
    }
    tables["rejections"] = None
    config = PreferencesConfig(rejected="drawn")
    rows = list(build_preferences(pairs, config, **{**EVERYTHING, **tables}))
    makers = [row.rejected_maker for row in rows if isinstance(row, PreferenceRow)]
    assert all(150 < makers.count(maker) < 250 for maker in ("retrieved", "swapped", "edited"))
    assert rows == list(build_preferences(pairs, config, **{**EVERYTHING, **tables}))


def test_makers_that_came_to_the_same_text_count_once() -> None:
    same = {PAIR.key: (replace(text("counterfactual", 0.95)[PAIR.key][0], text="swapped text"),)}
    row = build(counterfactual=same)
    assert isinstance(row, PreferenceRow)
    assert (row.rejected, row.rejected_maker, [n.maker for n in row.negatives]) == (
        "swapped text",
        "counterfactual",
        ["edited", "retrieved"],
    )


def test_what_a_judge_found_right_is_not_rejected() -> None:
    made = {
        name: replace(EVERYTHING[name][PAIR.key][0], key=make_key(name))
        for name in ("swapped", "retrieved")
    }
    checks = [
        CheckRow(
            key=make_key("check", row.key),
            source_key=row.key,
            subject=PAIR.key,
            description=row.key,
            check="judged",
            passed=passed,
            score=4.0 * passed,
        )
        for row, passed in ((made["swapped"], True), (made["retrieved"], False))
    ]
    tables = {name: {PAIR.key: (row,)} for name, row in made.items()} | {"edited": {}}
    row = build(judged_rejected={PAIR.key: tuple(checks)}, **tables)
    assert isinstance(row, PreferenceRow)
    assert (row.rejected_maker, row.negatives) == ("retrieved", ())


def says(*colours: str) -> str:
    """Return the claims that the first ball, and in the second image a ball, are of these
    colours."""
    return CLAIMS.dump_json(
        (
            Claim(side=0, kind="exists", selector=Selector(shape="ball", colour=colours[0])),
            Claim(side=1, kind="exists", selector=Selector(shape="ball", colour=colours[1])),
        )
    ).decode()


def told(number: int, *, groups: tuple[str, str] = ("w", "w"), rejected: str = "") -> PreferenceRow:
    """Return the preference of a pair whose ball turns from red to blue, and a text that says
    green."""
    images = {row.key: replace(row, group=group) for row, group in zip(IMAGES, groups, strict=True)}
    pair = replace(PAIR, key=make_key(number), subject=make_key(number))
    edited = replace(text("edited", 0.7)[PAIR.key][0], claims=rejected or says("red", "green"))
    tables: dict[str, Any] = {
        "splits": {pair.key: SPLIT},
        "differences": {pair.key: (replace(DIFFERENCE, claims=says("red", "blue")),)},
        "edited": {pair.key: (edited,)},
    }
    (row,) = build_preferences([pair], HARDEST, images=images, rejections=None, **tables)
    assert isinstance(row, PreferenceRow)
    return row


def test_texts_are_of_the_kind_that_the_prompt_asks_for() -> None:
    rows = [told(number) for number in range(100)]
    kinds = {row.kind: row for row in rows}
    assert set(kinds) == set(KINDS)
    for kind, row in kinds.items():
        wordings = load_wordings("ask_difference").kinds["ask" if kind == "template" else kind]
        assert row.prompt[0].text in [wording.text for wording in wordings]
        assert (row.claims, row.rejected_claims) == (says("red", "blue"), says("red", "green"))
    assert (kinds["template"].chosen, kinds["template"].rejected) == ("chosen text", "edited text")
    assert kinds["template"].description == ""
    for row in (kinds["changes"], kinds["list"], kinds["short"]):
        assert row.description == "chosen text"
        assert row.rejected == row.chosen.replace("blue", "green")
    assert kinds["list"].chosen.startswith("1. ")
    assert kinds["sentences"].chosen.count(".") == 2
    assert rows[:5] == [told(number) for number in range(5)]


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({"groups": ("v", "w")}, {"template", "sentences"}),
        ({"groups": ("", "")}, {"template", "sentences"}),
        ({"rejected": "[]"}, {"template"}),  # unknown claims cannot be said in another way
        (
            {"rejected": says("red", "blue")},
            {"template"},
        ),  # the texts differ in words, and in nothing that they claim
    ],
)
def test_kinds_that_do_not_fit_are_not_drawn(changes: dict[str, Any], kinds: set[str]) -> None:
    assert {told(number, **changes).kind for number in range(60)} == kinds


SHOWN, REMOVALS = tuple(row.image for row in IMAGES), EVERYTHING["removals"]


def crop(window: tuple[int, int, int, int]) -> RejectionRow:
    return replace(CROP, side=0, window=window)


def test_a_crop_is_as_large_as_its_image() -> None:
    made, kept = reject_image(SHOWN, crop((8, 16, 40, 32)), {})
    assert kept == SHOWN[1]
    pixels = np.asarray(Image.open(BytesIO(made)))
    assert pixels.shape == (40, 48, 3)
    # Noise in blocks of 8: the window's blocks are 12 wide and 20 high now, and their middles keep
    # their colours.
    before = np.asarray(Image.open(BytesIO(SHOWN[0])))
    for row in range(2):
        for column in range(4):
            middle = pixels[20 * row + 10, 12 * column + 6]
            assert np.array_equal(middle, before[16 + 8 * row + 4, 8 + 8 * column + 4])


@pytest.mark.parametrize(
    ("images", "rejection", "removals", "reason"),
    [
        ((SHOWN[0][:-50], SHOWN[1]), REJECTION, REMOVALS, "truncated image"),
        ((b"", SHOWN[1]), REJECTION, REMOVALS, "empty file"),
        (SHOWN, REJECTION, {}, NOT_MADE),
        (
            SHOWN,
            REJECTION,
            {BALL.key: replace(REMOVALS[BALL.key], patch=png(np.zeros((3, 3, 3), np.uint8)))},
            NOT_MADE,
        ),
        (SHOWN, REJECTION, {BALL.key: replace(REMOVALS[BALL.key], patch=b"no image")}, NOT_MADE),
        (SHOWN, crop((0, 0, 49, 10)), {}, NOT_MADE),
    ],
    ids=["truncated", "empty", "no removal", "small patch", "damaged patch", "outside"],
)
def test_what_cannot_be_made_is_a_reason(images, rejection, removals, reason: str) -> None:
    made = reject_image(images, rejection, removals)
    assert isinstance(made, Dropped)
    assert (made.source_key, made.reason) == (PAIR.key, reason)


IMAGE = IMAGES[0]
GIVEN = row_of(
    PreferenceRow,
    "A dog.",
    source="item",
    subject=IMAGE.key,
    prompt=(Turn(role="user", text="What is it?"),),
    images=(IMAGE.image,),
    image_keys=(IMAGE.key,),
    chosen="A dog.",
    rejected="A cat.",
    rejected_maker="given",
)
GIVEN_REJECTION = rejection_of(GIVEN.key, BALL)


def reject(rejection: RejectionRow | None, row: PreferenceRow = GIVEN) -> PreferenceRow | Dropped:
    rejections = {row.key: rejection} if rejection else {}
    (made,) = build_preferences(
        [row], PreferencesConfig(), rejections=rejections, removals=REMOVALS
    )
    return made


def test_the_image_without_its_element_is_rejected() -> None:
    row = reject(GIVEN_REJECTION)
    assert isinstance(row, PreferenceRow)
    (image,) = row.rejected_images
    assert np.array_equal(decode_rgb(image), without_block(IMAGE, BLOCK))
    assert (row.removal_scores, row.rejected_image_maker) == (
        GIVEN_REJECTION.removal_scores,
        "removal",
    )
    new = {"key": GIVEN.key, "source_key": "item", "rejected_images": (), "removal_scores": ()}
    assert replace(row, **new, rejected_image_maker="") == GIVEN, (
        "all else is as the source gave it"
    )
    assert row.source_key == GIVEN.key


def test_what_has_to_go_says_why() -> None:
    assert reject(None) == Dropped(source_key=GIVEN.key, reason="no rejected image")
    several = replace(GIVEN, image_keys=(IMAGE.key, IMAGE.key))
    assert reject(None, several) == Dropped(source_key=GIVEN.key, reason=SEVERAL)
    damaged = reject(GIVEN_REJECTION, replace(GIVEN, images=(IMAGE.image[:-40],)))
    assert isinstance(damaged, Dropped)
    assert (damaged.source_key, damaged.reason) == (GIVEN.key, "truncated image")


def test_without_rejected_images_it_stays_as_it_is() -> None:
    (made,) = build_preferences([GIVEN], PreferencesConfig())
    assert made == replace(GIVEN, source_key=GIVEN.key)
