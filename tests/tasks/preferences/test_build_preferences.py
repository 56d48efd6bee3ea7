"""Tests of preference rows: what is chosen, what is rejected, in which order, and when there is none."""

from dataclasses import replace

import pytest

from schemas.claims import CLAIMS, Claim, Selector
from schemas.config import PreferencesConfig
from schemas.rows import (
    DifferenceRow,
    Dropped,
    ImageRow,
    PairRow,
    PreferenceRow,
    RejectedTextRow,
    RemovalRow,
    SplitRow,
    make_key,
)
from schemas.scene import Mask, SceneGraph, SceneObject
from tasks.preferences.build_preferences import MAKERS, STAGE, ask, build_preferences

FIRST, SECOND = sorted([make_key("first"), make_key("second")])
PAIR = PairRow(
    key=make_key(FIRST, SECOND), source_key="s", subject=make_key(FIRST, SECOND), first=FIRST, second=SECOND,
    origin="mined", anchor=FIRST, cluster=0,
)  # fmt: skip
BALL = SceneObject(
    id="ball", shape="ball", colour="red", material="metal", size="small", column="left", depth="front",
    box=(0, 0, 2, 2), visible=1, mask=Mask(height=2, width=2, counts=(0, 4)),
)  # fmt: skip


def names() -> dict[str, str]:
    return {"key": PAIR.key, "source_key": PAIR.key, "subject": PAIR.key}


def image(key: str, *things: SceneObject) -> ImageRow:
    graph = SceneGraph(world="w", photograph=0, place="a table", light="l", viewpoint="v", objects=things)
    return ImageRow(
        key=key, source_key=key, subject=key, image=key.encode(), format="png", width=2, height=2, name=key,
        source="scenes", licence="CC0-1.0", group="w", graph=graph,
    )  # fmt: skip


def text(maker: str, score: float) -> dict[str, RejectedTextRow]:
    row = RejectedTextRow(**names(), text=f"{maker} text", maker=maker, note=f"by {maker}", score=score, skipped_true=0)
    return {PAIR.key: row}


CLAIMED = (Claim(side=0, kind="exists", selector=Selector(shape="ball")),)
DIFFERENCE = DifferenceRow(
    **names(), text="chosen text", first_half="a ball", second_half="no ball", verbs=("has", "has"), attempts=1,
    finish_reason="stop", model="scene-graph", claims=CLAIMS.dump_json(CLAIMED).decode(), no_change=False,
)  # fmt: skip
SPLIT = SplitRow(**names(), component="c", split="test")
REMOVAL = RemovalRow(
    key="removal", source_key=FIRST, subject=FIRST, tag="red metal ball", object_ids=("ball",), box=(0, 0, 2, 2),
    mask="", image=b"without the ball", area_share=0.1, changed_outside=0,
)  # fmt: skip
EVERYTHING = {
    "splits": {PAIR.key: SPLIT},
    "images": {FIRST: image(FIRST, BALL), SECOND: image(SECOND)},
    "differences": {PAIR.key: DIFFERENCE},
    "retrieved": text("retrieved", 0.5),
    "swapped": text("swapped", 0.9),
    "edited": text("edited", 0.7),
    "removals": {FIRST: (REMOVAL,), SECOND: ()},
}
HARDEST = PreferencesConfig(rejected="hardest")


def build(config: PreferencesConfig = HARDEST, **changes: object) -> PreferenceRow | Dropped:
    (row,) = build_preferences([PAIR], config, **{**EVERYTHING, **changes})
    return row


def test_a_preference_holds_everything_that_was_made() -> None:
    row = build()
    assert isinstance(row, PreferenceRow)
    assert (row.chosen, row.rejected, row.rejected_maker, row.rejected_note) == (
        "chosen text", "swapped text", "swapped", "by swapped",
    )  # fmt: skip
    assert [(n.maker, n.score) for n in row.negatives] == [("edited", 0.7), ("retrieved", 0.5)]
    assert row.images == (FIRST.encode(), SECOND.encode())
    assert row.rejected_images == (b"without the ball", SECOND.encode())
    assert [(score.removal, score.side, score.chosen) for score in row.removal_scores] == [("removal", 0, True)]
    assert (row.split, row.component, row.licences) == ("test", "c", ("CC0-1.0", "CC0-1.0"))
    assert row.prompt[0].role == "user"


def test_without_texts_the_images_are_rejected_alone() -> None:
    row = build(retrieved={}, swapped={}, edited={})
    assert isinstance(row, PreferenceRow)
    assert (row.rejected, row.rejected_maker, row.negatives) == ("", "", ())
    assert row.rejected_images


def test_without_removals_the_texts_are_rejected_alone() -> None:
    row = build(removals={FIRST: (), SECOND: ()})
    assert isinstance(row, PreferenceRow)
    assert (row.rejected_images, row.removal_scores) == ((), ())
    assert row.rejected


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"differences": {}}, "no difference description"),
        ({"retrieved": {}, "swapped": {}, "edited": {}, "removals": {FIRST: (), SECOND: ()}}, "nothing to reject"),
    ],
)
def test_pairs_that_give_none_say_why(changes: dict[str, object], reason: str) -> None:
    row = build(**changes)
    assert isinstance(row, Dropped)
    assert (row.source_key, row.reason) == (PAIR.key, reason)


def test_the_key_changes_with_what_is_shown() -> None:
    rows = [build(), build(swapped=text("swapped", 0.1)), build(swapped={}), build(removals={FIRST: (), SECOND: ()})]
    rows.append(build(differences={PAIR.key: replace(DIFFERENCE, text="other")}))
    rows.append(build(splits={PAIR.key: replace(SPLIT, split="train")}))
    assert len({row.key for row in rows if isinstance(row, PreferenceRow)}) == len(rows)


def test_drawn_makers_are_met_equally_often() -> None:
    pairs = [replace(PAIR, key=make_key(number), subject=make_key(number)) for number in range(600)]
    tables = {
        name: {pair.key: table[PAIR.key] for pair in pairs}
        for name, table in EVERYTHING.items()
        if name not in ("images", "removals")
    }
    config = PreferencesConfig(rejected="drawn")
    rows = list(build_preferences(pairs, config, **{**EVERYTHING, **tables}))
    makers = [row.rejected_maker for row in rows if isinstance(row, PreferenceRow)]
    assert all(150 < makers.count(maker) < 250 for maker in ("retrieved", "swapped", "edited"))
    assert rows == list(build_preferences(pairs, config, **{**EVERYTHING, **tables}))


@pytest.mark.parametrize("made", [(), ("sampled",), ("refuted", "counterfactual"), MAKERS])
def test_any_makers_will_do(made: tuple[str, ...]) -> None:
    tables = {name: table for name, table in EVERYTHING.items() if name not in MAKERS}
    (row,) = build_preferences([PAIR], HARDEST, **tables, **{name: text(name, 0.1 * len(name)) for name in made})
    assert isinstance(row, PreferenceRow)
    longest_first = sorted(made, key=lambda name: (-len(name), name))
    assert [maker for maker in (row.rejected_maker, *(n.maker for n in row.negatives)) if maker] == longest_first


def test_what_is_no_maker_is_refused() -> None:
    with pytest.raises(TypeError, match="guessed"):
        build(guessed=text("guessed", 1))


def test_without_removals_nothing_of_them_is_needed() -> None:
    tables = {name: table for name, table in EVERYTHING.items() if name != "removals"}
    (row,) = build_preferences([PAIR], HARDEST, **tables)
    assert isinstance(row, PreferenceRow)
    assert (row.rejected_images, row.removal_scores) == ((), ())


def test_makers_that_came_to_the_same_text_count_once() -> None:
    same = {PAIR.key: replace(text("refuted", 0.95)[PAIR.key], text="swapped text")}
    row = build(refuted=same)
    assert isinstance(row, PreferenceRow)
    assert (row.rejected, row.rejected_maker, [n.maker for n in row.negatives]) == (
        "swapped text", "refuted", ["edited", "retrieved"],
    )  # fmt: skip


def test_the_stage_reads_the_tables_of_all_makers() -> None:
    used = {use.table for use in STAGE.uses}
    assert used == {"splits", "images", "differences", "removals", *MAKERS}


def test_questions_vary_and_stay_with_their_pair() -> None:
    asked = [ask(replace(PAIR, key=make_key(number)), HARDEST) for number in range(100)]
    assert len(set(asked)) > 5
    assert asked[7] == ask(replace(PAIR, key=make_key(7)), HARDEST)
