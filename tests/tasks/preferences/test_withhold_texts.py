"""Rejected texts that a pair does without: right beside its rejected image, or of another pair."""

from dataclasses import replace

from pairwright.schemas.arrow import to_table
from pairwright.schemas.claims import CLAIMS, Claim, Selector
from pairwright.schemas.config import PreferencesConfig
from pairwright.schemas.rows import (
    DifferenceRow,
    ImageRow,
    PairRow,
    RejectedTextRow,
    RemovalRow,
    SplitRow,
)
from pairwright.tasks.preferences.build_preferences import build_preferences
from pairwright.tasks.preferences.withhold_texts import (
    CHOSEN_ELSEWHERE,
    TRUE_OF_REJECTED,
    withhold_texts,
)
from tests.fixtures import removals
from tests.fixtures.descriptions import description, rejected_text
from tests.fixtures.graphs import graph, image_row, pair_row, thing
from tests.fixtures.rows import row_of

BALL = thing("ball", "ball", "red")
MUG = thing("mug", "mug", "blue", column="right")
BOX = thing("box", "box", "green", column="centre")
SCENES = (graph(BALL, MUG), graph(BALL, BOX))
CONFIG = PreferencesConfig()


def claim(side, kind="exists", **named):
    return Claim(side=side, kind=kind, selector=Selector(**named))


def pair_of(number, *, split="train", has_claims=True):
    """Make a pair with its images, description and split."""
    images = [image_row(f"{number}-{side}", scene) for side, scene in enumerate(SCENES)]
    pair = pair_row(*(image.key for image in images))
    claims = (claim(0, shape="mug"), claim(1, shape="box")) if has_claims else ()
    row = description("shows a mug", "shows a box", subject=pair.key, claims=claims)
    row = replace(row, text=f"chosen {number}")
    return pair, images, row, row_of(SplitRow, source=pair.key, split=split, component="c")


NO_MUG = (claim(0, "absent", shape="mug"),)


def false_text(row, text, *, claims=NO_MUG):
    return rejected_text(row, "edited", text, claims=CLAIMS.dump_json(claims).decode())


def withhold(cases, texts, **uses):
    """Return why each text is withheld, by its words.

    Each pair has one more text, of unknown claims, with which all texts keep their words.
    """
    pairs, images, rows, splits = zip(*cases, strict=True)
    texts = [*texts, *(rejected_text(row, "edited", "of unknown claims") for row in rows)]
    all_images = [image for both in images for image in both]
    withheld = withhold_texts(
        pairs,
        CONFIG,
        everything=to_table(pairs, PairRow),
        groups=to_table(all_images, ImageRow),
        splits=to_table(splits, SplitRow),
        differences=to_table(rows, DifferenceRow),
        edited=to_table(texts, RejectedTextRow),
        scenes={image.key: image for image in all_images},
        **uses,
    )
    words = {text.key: text.text for text in texts}
    reasons: dict[str, str] = {}
    for row in withheld:
        reasons |= {words[key]: why for key, why in zip(row.texts, row.reasons, strict=True)}
    return reasons


def test_no_text_that_training_chooses_is_rejected_elsewhere() -> None:
    first, second = pair_of(1), pair_of(2)
    held = pair_of(3, split="test")
    texts = [
        false_text(first[2], "Chosen 2"),
        false_text(first[2], "chosen 3"),
        false_text(second[2], "chosen 2 b"),
        false_text(held[2], "chosen 1"),
    ]
    assert withhold([first, second, held], texts) == {
        "Chosen 2": CHOSEN_ELSEWHERE,
        "chosen 1": CHOSEN_ELSEWHERE,
    }


def test_a_text_that_two_pairs_choose_is_withheld_from_both() -> None:
    first, second = pair_of(1), pair_of(2)
    second = (second[0], second[1], replace(second[2], text="chosen 1"), second[3])
    texts = [false_text(first[2], "chosen 1"), false_text(second[2], "chosen 1.")]
    assert set(withhold([first, second], texts).values()) == {CHOSEN_ELSEWHERE}


def test_what_people_and_models_wrote_is_rejected_for_other_pairs() -> None:
    """Retrieval takes such texts from other pairs, word for word (paper 000)."""
    first, second = pair_of(1, has_claims=False), pair_of(2, has_claims=False)
    retrieved = rejected_text(first[2], "retrieved", "chosen 2")
    assert withhold([first, second], [retrieved]) == {}
    known = pair_of(1)
    retrieved = rejected_text(known[2], "retrieved", "chosen 2")
    assert withhold([known, pair_of(2)], [retrieved]) == {}, "its claims are not known"


def test_a_rejected_text_is_not_true_of_the_rejected_image() -> None:
    """The ball is removed from the first image: that it shows none is then right."""
    case = pair_of(1)
    element = removals.element_of("1-0", "red metal ball")
    removal = row_of(RemovalRow, source=element.key, image_key="1-0", object_ids=("ball",))
    rejection = removals.rejection_of(case[0].key, element)
    no_ball = (claim(0, "absent", shape="ball"), claim(1, shape="ball"))
    no_mug = (claim(0, "absent", shape="mug"), claim(1, shape="ball"))
    texts = [
        false_text(case[2], "no ball", claims=no_ball),
        false_text(case[2], "no mug", claims=no_mug),
    ]
    uses = {
        "rejections": {case[0].key: rejection},
        "removals": {element.key: removal},
    }
    assert withhold([case], texts, **uses) == {"no ball": TRUE_OF_REJECTED}
    assert withhold([case], texts) == {}
    crop = {case[0].key: replace(rejection, maker="crop", element="")}
    assert withhold([case], texts, rejections=crop, removals={}) == {}


def test_texts_of_other_methods_take_their_place() -> None:
    pair, images, row, split = pair_of(1)
    other = pair_of(2)
    texts = {
        "edited": false_text(row, "chosen 2"),
        "swapped": rejected_text(row, "swapped", "a swapped text"),
    }
    unknown = rejected_text(other[2], "edited", "of unknown claims")
    pairs = [pair, other[0]]
    (withheld, _) = withhold_texts(
        pairs,
        CONFIG,
        everything=to_table(pairs, PairRow),
        groups=to_table([*images, *other[1]], ImageRow),
        splits=to_table([split, other[3]], SplitRow),
        differences=to_table([row, other[2]], DifferenceRow),
        edited=to_table([texts["edited"], unknown], RejectedTextRow),
        swapped=to_table([texts["swapped"]], RejectedTextRow),
    )
    assert withheld.reasons == (CHOSEN_ELSEWHERE,)

    def preference(**tables):
        (made,) = build_preferences(
            [pair],
            CONFIG,
            splits={pair.key: split},
            images={image.key: image for image in images},
            differences={pair.key: (row,)},
            withheld={pair.key: withheld},
            **{maker: {pair.key: (text,)} for maker, text in tables.items()},
        )
        return made

    both = preference(**texts)
    assert (both.rejected, both.negatives) == ("a swapped text", ())
    assert preference(edited=texts["edited"]).rejected == ""
