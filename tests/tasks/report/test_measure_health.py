"""What is told of preferences: texts that give themselves away, lengths, copies, rejected texts
that are true."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from pairwright.schemas.bounds import HealthConfig
from pairwright.schemas.checks import LOW_RATING, NO_RATING
from pairwright.schemas.rows import Negative
from pairwright.tasks.pages.charts import Proportion
from pairwright.tasks.report.measure_health import (
    FOLDS,
    LEAST_ROWS,
    Finding,
    judge_wording,
    measure_health,
    predict_chosen,
)
from pairwright.tasks.report.query_tables import Tables
from tests.tasks.report.handmade import LINE, build_handmade, encode, make_whole
from tests.tasks.report.handmade_served import LINE_SERVED, make_served

WORDS = ["cup", "ball", "duck", "chair", "lamp", "book", "ring", "sign"]


def rows_of(count: int, *, marked: float, components: int = 20) -> list[dict[str, str]]:
    """Return rows whose texts are drawn evenly; a share of the rejected ones says "perhaps"."""
    rng = random.Random(0)
    rows = []
    for number in range(count):
        texts = [" ".join(rng.choices(WORDS, k=6)) for _ in range(2)]
        told = " perhaps" if rng.random() < marked else ""
        rows.append(
            {"chosen": texts[0], "rejected": texts[1] + told, "component": str(number % components)}
        )
    return rows


def test_texts_that_give_themselves_away_are_found_and_others_are_not() -> None:
    found = predict_chosen(rows_of(400, marked=1.0))
    assert found is not None
    assert found.mean() == 1.0
    half = predict_chosen(rows_of(400, marked=0.5))
    assert half is not None
    assert 0.65 < half.mean() < 0.85, "one half for certain, the other by chance"
    even = predict_chosen(rows_of(400, marked=0.0))
    assert even is not None
    assert 0.4 < even.mean() < 0.6


def test_what_is_learnt_of_a_component_does_not_count_for_it() -> None:
    """Each component has a word of its own, by which its rejected texts are known: no other one has
    it."""
    rng = random.Random(1)
    rows = []
    for number in range(400):
        texts = [" ".join(rng.choices(WORDS, k=6)) for _ in range(2)]
        own = number % 20
        rows.append(
            {"chosen": texts[0], "rejected": f"{texts[1]} only{own}", "component": str(own)}
        )
    found = predict_chosen(rows)
    assert found is not None
    assert 0.4 < found.mean() < 0.6


def test_rows_that_tell_nothing() -> None:
    rows = [
        {"chosen": "a b", "rejected": "a b", "component": str(number)}
        for number in range(LEAST_ROWS)
    ]
    assert np.array_equal(predict_chosen(rows), np.full(LEAST_ROWS, 0.5))
    assert predict_chosen(rows_of(LEAST_ROWS - 1, marked=1.0)) is None
    assert predict_chosen(rows_of(400, marked=1.0, components=FOLDS - 1)) is None


def test_few_rows_are_spared() -> None:
    """Of 40 rows about 34 are known by a word; the interval reaches below the bound."""
    rows = [{**row, "rejected_maker": "edited"} for row in rows_of(40, marked=0.7)]
    for most, good in ((0.5, False), (0.9, True)):
        told, longer = judge_wording(
            rows, HealthConfig(max_text_only_accuracy=most, max_longer_share=0.5)
        )
        assert (told.name, told.good) == ("Told by the text", good)
        assert told.proportion.value > 0.7
        assert (longer.name, longer.good) == ("Longer", False)
    (few, _) = judge_wording(rows[:10], HealthConfig())
    assert (few.value, few.good) == ("not measured", False)
    assert list(judge_wording([], HealthConfig())) == []


SHARES = ("text_only_accuracy", "longer_share", "true_share", "leaked_share", "repeated_share")
DEFAULT = HealthConfig()
OFF = HealthConfig.model_validate({f"max_{one}": 1 for one in SHARES} | {"min_changed_share": 0})


def health(root: Path, made, line=LINE, bounds=DEFAULT) -> dict[str, Finding]:
    with build_handmade(root / "dataset", made, line=line) as (build, _):
        return {one.name: one for one in measure_health(Tables(build), bounds)}


def test_rejected_texts_that_hold_and_rows_that_repeat_are_counted(tmp_path: Path) -> None:
    made = make_whole()
    preferences = made.of("preferences")
    shape = made.of("images")[0].graph.objects[0].shape
    claims = [
        f'[{{"side": 0, "kind": "exists", "selector": {{"shape": "{name}"}}}}]'
        for name in (shape, "unicorn")
    ]
    first, second = preferences[:2]
    made.tables["preferences"] = [
        replace(first, claims=claims[0], rejected=second.chosen, rejected_claims=claims[1]),
        replace(second, claims=claims[1], rejected=first.chosen, rejected_claims=claims[0]),
        replace(preferences[2], rejected=preferences[2].chosen),
        *preferences[3:],
    ]
    found = health(tmp_path, made)
    assert (
        found["Rejected, yet true"].proportion
        == found["Chosen, yet false"].proportion
        == Proportion(1, 2)
    )
    words = [
        (len(one.chosen.split()), len(one.rejected.split())) for one in made.tables["preferences"]
    ]
    longer = sum((a > b) + (a == b) / 2 for a, b in words)
    assert found["Longer"].proportion == Proportion(longer, len(preferences))
    assert "{:.1f} words against {:.1f}".format(*np.mean(words, axis=0)) in found["Longer"].about
    different = len({(one.chosen, one.rejected) for one in made.tables["preferences"]})
    assert found["Repeated"].proportion == Proportion(len(words) - different, len(words))
    assert "in 1, chosen and rejected are the same" in found["Repeated"].about
    beyond = ["Chosen, yet false", "Rejected, yet true", "Repeated"]
    assert not any(found[name].good for name in beyond)
    off = health(tmp_path, made, bounds=OFF)
    assert [name for name in beyond if not off[name].good] == ["Chosen, yet false", "Repeated"]


def test_held_out_answers_that_training_rejects_are_counted(tmp_path: Path) -> None:
    """Of three splits, two are held out; what a held-out row rejects does not count."""
    made = make_whole()
    rows = {
        split: [one for one in made.of("preferences") if one.split == split]
        for split in ("train", "validation")
    }
    (first, second, *_), (one, other, *_) = rows["train"], rows["validation"]
    texts = {
        one.key: "A cup has gone.",
        other.key: "A duck has come.",
        first.key: "A lamp is on.",
        second.key: "A dog.",
    }
    negative = Negative(text=texts[other.key], maker="edited", note="", score=0.5)
    changed = {
        first.key: {"rejected": "a CUP has gone"},
        second.key: {"negatives": (negative,)},
        one.key: {"rejected": texts[other.key]},
    }
    made.tables["preferences"] = [
        replace(
            row,
            chosen=texts.get(row.key, row.key),
            **({"rejected": f"{row.key} b"} | changed.get(row.key, {})),
        )
        for row in made.of("preferences")
    ]
    found = health(tmp_path, made)["Held out, yet rejected"]
    held = sum(row.split != "train" for row in made.of("preferences"))
    assert (found.proportion, found.good) == (Proportion(2, held), False)


def test_rejected_texts_that_a_judge_found_right_are_counted(tmp_path: Path) -> None:
    made = make_served()
    pairs = {one.subject for one in made.of("preferences")}
    passed, failed, unrated = [
        *{one.subject: one for one in made.of("judged") if one.subject in pairs}.values()
    ][:3]
    made.tables["judged"] = [
        replace(passed, passed=True, why=""),
        replace(failed, passed=False, why=LOW_RATING),
        replace(unrated, passed=False, why=NO_RATING),
    ]
    texts = {one.key: (one.subject, one.text) for one in made.of("described")}
    rated = dict(texts[one.description] for one in (passed, failed, unrated))
    made.tables["preferences"] = [
        replace(one, rejected=rated.get(one.subject, one.rejected).upper())
        for one in made.of("preferences")
    ]
    found = health(tmp_path, made, line=LINE_SERVED)["Rejected, yet believed"]
    assert (found.proportion, found.good) == (Proportion(1, 2), False)


def test_texts_that_nothing_looked_at_are_counted(tmp_path: Path) -> None:
    made = make_whole()
    told = ({"model": "vlm"}, {"model": "vlm", "checks": '{"swapped": 0.5}'}, {"model": "given"})
    differences, preferences = made.of("differences")[:3], made.of("preferences")[:3]
    notes = ("halves exchanged, unchecked", "of pair q, unchecked", "colour red -> blue")
    made.tables["differences"] = [
        replace(row, **one) for row, one in zip(differences, told, strict=True)
    ]
    made.tables["preferences"] = [
        replace(row, subject=said.subject, chosen=said.text, claims="[]", rejected_note=note)
        for row, said, note in zip(preferences, differences, notes, strict=True)
    ]
    found = health(tmp_path, made)
    for name, share in (
        ("Chosen, unchecked", Proportion(1, 2)),
        ("Rejected, unchecked", Proportion(2, 3)),
    ):
        assert (found[name].proportion, found[name].good) == (share, False)


def test_the_changed_share_of_a_rejected_image_is_that_of_its_pixels(tmp_path: Path) -> None:
    made = make_whole()
    image = Image.new("RGB", (20, 10), "white")
    whole, changed = (encode(one, "PNG") for one in (image, _painted(image)))
    made.tables["preferences"] = [
        replace(
            one,
            images=(whole, whole),
            rejected_images=(whole, changed),
            rejected_image_maker="removal",
        )
        for one in made.of("preferences")
    ]
    found = health(tmp_path, made, bounds=HealthConfig(min_changed_share=0.06))[
        "Rejected images differ"
    ]
    assert (found.value, found.good) == ("5.0%", False)
    assert health(tmp_path, made)["Rejected images differ"].good


def _painted(image: Image.Image) -> Image.Image:
    """Paint 10 of 200 pixels, and 10 others so little that nobody sees it."""
    painted = image.copy()
    painted.paste("black", (0, 0, 5, 2))
    painted.paste((250, 250, 250), (10, 0, 15, 2))
    return painted


def test_without_preferences_there_is_no_health(tmp_path: Path) -> None:
    with build_handmade(tmp_path / "dataset", make_whole(), until="pairs") as (build, _):
        assert measure_health(Tables(build), HealthConfig()) == []
