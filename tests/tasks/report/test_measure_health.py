"""What is told of preferences: texts that give themselves away, lengths, copies, rejected texts that are true."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pairwright.schemas.bounds import HealthConfig
from pairwright.schemas.checks import LOW_RATING, NO_RATING
from pairwright.schemas.rows import Negative
from pairwright.tasks.pages.charts import Proportion
from pairwright.tasks.report.measure_health import FOLDS, LEAST_ROWS, Health, judge_health, measure_health, tell
from pairwright.tasks.report.tables import Tables
from tests.tasks.report.handmade import build_handmade, encode, make_whole
from tests.tasks.report.handmade_served import LINE_SERVED, make_served
from tests.tasks.report.pages import read, report

WORDS = ["cup", "ball", "duck", "chair", "lamp", "book", "ring", "sign"]


def rows_of(count: int, *, marked: float, components: int = 20) -> list[dict[str, str]]:
    """Return rows whose texts are drawn evenly; a share of the rejected ones says "perhaps"."""
    rng = random.Random(0)
    rows = []
    for number in range(count):
        texts = [" ".join(rng.choices(WORDS, k=6)) for _ in range(2)]
        told = " perhaps" if rng.random() < marked else ""
        rows.append({"chosen": texts[0], "rejected": texts[1] + told, "component": str(number % components)})
    return rows


def test_texts_that_give_themselves_away_are_found_and_others_are_not() -> None:
    found = tell(rows_of(400, marked=1.0))
    assert found is not None
    assert found.mean() == 1.0
    half = tell(rows_of(400, marked=0.5))
    assert half is not None
    assert 0.65 < half.mean() < 0.85, "one half for certain, the other by chance"
    even = tell(rows_of(400, marked=0.0))
    assert even is not None
    assert 0.4 < even.mean() < 0.6


def test_what_is_learnt_of_a_component_does_not_count_for_it() -> None:
    """Each component has a word of its own, by which its rejected texts are known: no other one has it."""
    rng = random.Random(1)
    rows = []
    for number in range(400):
        texts = [" ".join(rng.choices(WORDS, k=6)) for _ in range(2)]
        own = number % 20
        rows.append({"chosen": texts[0], "rejected": f"{texts[1]} only{own}", "component": str(own)})
    found = tell(rows)
    assert found is not None
    assert 0.4 < found.mean() < 0.6


def test_rows_that_tell_nothing() -> None:
    rows = [{"chosen": "a b", "rejected": "a b", "component": str(number)} for number in range(LEAST_ROWS)]
    assert np.array_equal(tell(rows), np.full(LEAST_ROWS, 0.5))
    assert tell(rows_of(LEAST_ROWS - 1, marked=1.0)) is None
    assert tell(rows_of(400, marked=1.0, components=FOLDS - 1)) is None


GOOD = Health(
    rows=100,
    words=(10.0, 10.0),
    longer=Proportion(hits=50, of=100),
    told=Proportion(hits=52, of=100),
    told_by={"edited": Proportion(hits=52, of=100)},
    false=Proportion(hits=0, of=50),
    true=Proportion(hits=0, of=50),
    repeated=Proportion(hits=1, of=100),
    same=0,
    leaked=Proportion(0, 0),
    believed=Proportion(0, 0),
    chosen_unchecked=Proportion(0, 30),
    rejected_unchecked=Proportion(0, 100),
    changed=(0.01, 0.02, 0.03),
)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"told": Proportion(hits=99, of=100)}, "Told by the text"),
        ({"longer": Proportion(hits=90, of=100)}, "Longer"),
        ({"longer": Proportion(hits=10, of=100)}, "Longer"),
        ({"false": Proportion(hits=1, of=50)}, "Chosen, yet false"),
        ({"true": Proportion(hits=5, of=50)}, "Rejected, yet true"),
        ({"believed": Proportion(hits=5, of=50)}, "Rejected, yet believed"),
        ({"told": None}, "Told by the text"),
        ({"chosen_unchecked": Proportion(hits=1, of=50)}, "Chosen, unchecked"),
        ({"rejected_unchecked": Proportion(hits=1, of=50)}, "Rejected, unchecked"),
        ({"leaked": Proportion(hits=1, of=1000)}, "Held out, yet rejected"),
        ({"repeated": Proportion(hits=50, of=100)}, "Repeated"),
        ({"same": 1}, "Repeated"),
        ({"changed": (0.0, 0.0, 0.5)}, "Rejected images differ"),
    ],
)
def test_what_is_beyond_its_bound_is_said(change: dict[str, object], name: str) -> None:
    assert all(one.good for one in judge_health(GOOD, HealthConfig()))
    beyond = [one.name for one in judge_health(replace(GOOD, **change), HealthConfig()) if not one.good]
    assert beyond == [name]
    shares = ("text_only_accuracy", "longer_share", "true_share", "leaked_share", "repeated_share")
    off = HealthConfig.model_validate({f"max_{one}": 1 for one in shares} | {"min_changed_share": 0})
    always = {"same", "false", "chosen_unchecked", "rejected_unchecked"} & {*change} or change == {"told": None}
    left = [one.name for one in judge_health(replace(GOOD, **change), off) if not one.good]
    assert left == ([name] if always else [])


def test_intervals_are_wilson_s_and_spare_few_rows() -> None:
    assert Proportion(hits=2, of=10).value == 0.2
    assert Proportion(hits=2, of=10).interval(1.645) == pytest.approx((0.0686, 0.4592), abs=1e-3)
    few = replace(GOOD, told=Proportion(hits=34, of=40))
    assert all(one.good for one in judge_health(few, HealthConfig(max_text_only_accuracy=0.8)))


def test_rejected_texts_that_hold_and_rows_that_repeat_are_counted(tmp_path: Path) -> None:
    made = make_whole()
    preferences = made.of("preferences")
    shape = made.of("images")[0].graph.objects[0].shape
    claims = [f'[{{"side": 0, "kind": "exists", "selector": {{"shape": "{name}"}}}}]' for name in (shape, "unicorn")]
    first, second = preferences[:2]
    made.tables["preferences"] = [
        replace(first, claims=claims[0], rejected=second.chosen, rejected_claims=claims[1]),
        replace(second, claims=claims[1], rejected=first.chosen, rejected_claims=claims[0]),
        replace(preferences[2], rejected=preferences[2].chosen),
        *preferences[3:],
    ]
    with build_handmade(tmp_path / "dataset", made) as (build, _):
        found = measure_health(Tables(build))
    assert found is not None
    assert (found.rows, found.same) == (len(preferences), 1)
    assert (found.true.hits, found.true.of) == (1, 2)
    assert (found.false.hits, found.false.of) == (1, 2)
    assert found.longer.of == len(preferences)
    words = [(len(one.chosen.split()), len(one.rejected.split())) for one in made.tables["preferences"]]
    assert found.longer.hits == sum((a > b) + (a == b) / 2 for a, b in words)
    assert found.words == pytest.approx(tuple(np.mean(words, axis=0)))
    assert found.repeated.hits == len(words) - len({(one.chosen, one.rejected) for one in made.tables["preferences"]})


def test_held_out_answers_that_training_rejects_are_counted(tmp_path: Path) -> None:
    """Of three splits, two are held out; what a held-out row rejects does not count."""
    made = make_whole()
    rows = {split: [one for one in made.of("preferences") if one.split == split] for split in ("train", "validation")}
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
        replace(row, chosen=texts.get(row.key, row.key), **({"rejected": f"{row.key} b"} | changed.get(row.key, {})))
        for row in made.of("preferences")
    ]
    with build_handmade(tmp_path / "dataset", made) as (build, _):
        found = measure_health(Tables(build))
    assert found is not None
    held = sum(row.split != "train" for row in made.of("preferences"))
    assert (found.leaked.hits, found.leaked.of) == (2, held)


def test_rejected_texts_that_a_judge_found_right_are_counted(tmp_path: Path) -> None:
    made = make_served()
    pairs = {one.subject for one in made.of("preferences")}
    passed, failed, unrated = [*{one.subject: one for one in made.of("judged") if one.subject in pairs}.values()][:3]
    made.tables["judged"] = [
        replace(passed, passed=True, why=""),
        replace(failed, passed=False, why=LOW_RATING),
        replace(unrated, passed=False, why=NO_RATING),
    ]
    texts = {one.key: (one.subject, one.text) for one in made.of("described")}
    rated = dict(texts[one.description] for one in (passed, failed, unrated))
    made.tables["preferences"] = [
        replace(one, rejected=rated.get(one.subject, one.rejected).upper()) for one in made.of("preferences")
    ]
    with build_handmade(tmp_path / "dataset", made, line=LINE_SERVED) as (build, _):
        found = measure_health(Tables(build))
    assert found is not None
    assert (found.believed.hits, found.believed.of) == (1, 2)


def test_texts_that_nothing_looked_at_are_counted(tmp_path: Path) -> None:
    made = make_whole()
    told = ({"model": "vlm"}, {"model": "vlm", "checks": '{"swapped": 0.5}'}, {"model": "given"})
    differences, preferences = made.of("differences")[:3], made.of("preferences")[:3]
    notes = ("halves exchanged, unchecked", "of pair q, unchecked", "colour red -> blue")
    made.tables["differences"] = [replace(row, **one) for row, one in zip(differences, told, strict=True)]
    made.tables["preferences"] = [
        replace(row, subject=said.subject, chosen=said.text, claims="[]", rejected_note=note)
        for row, said, note in zip(preferences, differences, notes, strict=True)
    ]
    with build_handmade(tmp_path / "dataset", made) as (build, _):
        found = measure_health(Tables(build))
    assert found is not None
    assert (found.chosen_unchecked, found.rejected_unchecked) == (Proportion(1, 2), Proportion(2, 3))


def test_the_changed_share_of_a_rejected_image_is_that_of_its_pixels(tmp_path: Path) -> None:
    made = make_whole()
    image = Image.new("RGB", (20, 10), "white")
    whole, changed = (encode(one, "PNG") for one in (image, _painted(image)))
    made.tables["preferences"] = [
        replace(one, images=(whole, whole), rejected_images=(whole, changed), rejected_image_maker="removal")
        for one in made.of("preferences")
    ]
    with build_handmade(tmp_path / "dataset", made) as (build, _):
        found = measure_health(Tables(build))
    assert found is not None
    assert set(found.changed) == {0.05}


def _painted(image: Image.Image) -> Image.Image:
    """Paint 10 of 200 pixels, and 10 others so little that nobody sees it."""
    painted = image.copy()
    painted.paste("black", (0, 0, 5, 2))
    painted.paste((250, 250, 250), (10, 0, 15, 2))
    return painted


def test_the_page_says_it_first_and_marks_what_is_beyond(tmp_path: Path) -> None:
    made = make_whole()
    made.tables["preferences"] = [replace(one, rejected=one.chosen) for one in made.of("preferences")]
    page = read(report(tmp_path, made))
    assert page.text.index("Health of the preferences") < page.text.index("Hover over an image")
    assert "Beyond the bound." in page.text
    assert [one for tag, one in page.tags if tag == "div" and one.get("class") == "beyond"]


def test_without_preferences_there_is_no_health(tmp_path: Path) -> None:
    with build_handmade(tmp_path / "dataset", make_whole(), until="pairs") as (build, _):
        assert measure_health(Tables(build)) is None
