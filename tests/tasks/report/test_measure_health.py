"""What is told of preferences: texts that give themselves away, lengths, copies, rejected texts
that are true."""

import random
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from pairwright.flows.pipeline.load_profile import load_profile
from pairwright.flows.pipeline.pipeline import Pipeline
from pairwright.schemas.bounds import HealthConfig
from pairwright.schemas.checks import LOW_RATING, NO_RATING
from pairwright.schemas.rows import HardnessRow, Negative, PreferenceRow
from pairwright.tasks.pages.charts import Proportion
from pairwright.tasks.report.measure_health import (
    FOLDS,
    LEAST_ROWS,
    judge_audit,
    judge_wording,
    measure_health,
    predict_chosen,
)
from pairwright.tasks.report.query_tables import Tables
from pairwright.tasks.store.audits import mark_writer, write_audit
from pairwright.tasks.store.files import Folder
from tests.fixtures.rows import row_of
from tests.tasks.report.handmade import LINE, Handmade, build_handmade, encode
from tests.tasks.report.handmade_served import LINE_SERVED

WORDS = ["cup", "ball", "duck", "chair", "lamp", "book", "ring", "sign"]


def rows_of(count, *, marked=0.0, components=20, mark=" perhaps"):
    """Return rows whose texts are drawn evenly; a share of the rejected ones ends with a mark."""
    rng = random.Random(0)
    rows = []
    for number in range(count):
        chosen, rejected = (" ".join(rng.choices(WORDS, k=6)) for _ in range(2))
        component = str(number % components)
        ending = mark.format(component) if rng.random() < marked else ""
        rows.append({"chosen": chosen, "rejected": rejected + ending, "component": component})
    return rows


@pytest.mark.parametrize(
    ("marked", "low", "high"),
    [
        pytest.param(1.0, 1.0, 1.0, id="all give themselves away"),
        pytest.param(0.5, 0.65, 0.85, id="one half for certain, the other by chance"),
        pytest.param(0.0, 0.4, 0.6, id="none"),
    ],
)
def test_texts_that_give_themselves_away(marked, low, high):
    assert low <= predict_chosen(rows_of(400, marked=marked)).mean() <= high


def test_what_is_learnt_of_a_component_does_not_count_for_it():
    """Each component has a word of its own, by which its rejected texts are known."""
    assert 0.4 < predict_chosen(rows_of(400, marked=1.0, mark=" only{}")).mean() < 0.6


def test_rows_that_tell_nothing():
    rows = [{"chosen": "a b", "rejected": "a b", "component": str(n)} for n in range(LEAST_ROWS)]
    assert np.array_equal(predict_chosen(rows), np.full(LEAST_ROWS, 0.5))
    assert predict_chosen(rows_of(LEAST_ROWS - 1, marked=1.0)) is None
    assert predict_chosen(rows_of(400, marked=1.0, components=FOLDS - 1)) is None


def test_few_rows_are_spared():
    """Of 40 rows about 34 are known by a word; the interval reaches below the bound."""
    rows = [{**row, "rejected_maker": "edited"} for row in rows_of(40, marked=0.7)]
    for most, good in ((0.5, False), (0.9, True)):
        bounds = HealthConfig(max_text_only_accuracy=most, max_longer_share=0.5)
        told, longer = judge_wording(rows, bounds)
        assert (told.name, told.good) == ("Told by the text", good)
        assert told.proportion.value > 0.7
        assert (longer.name, longer.good) == ("Longer", False)
    (few, _) = judge_wording(rows[:10], HealthConfig())
    assert (few.value, few.good) == ("not measured", False)
    assert list(judge_wording([], HealthConfig())) == []


SHARES = ("text_only_accuracy", "longer_share", "true_share", "leaked_share", "repeated_share")
DEFAULT = HealthConfig()
OFF = HealthConfig.model_validate({f"max_{name}": 1 for name in SHARES} | {"min_changed_share": 0})


def health(root, made, *, line=LINE, bounds=DEFAULT, **tables):
    """Return the findings by name, of a dataset of which some tables are others."""
    changed = Handmade({**made.tables, **tables})
    last = line[-1][0]
    with build_handmade(root / "dataset", changed, until=last, line=line) as (build, _):
        return {finding.name: finding for finding in measure_health(Tables(build), bounds)}


def test_rejected_texts_that_hold_and_rows_that_repeat_are_counted(tmp_path, small):
    preferences = small.of("preferences")
    true, false = (
        f'[{{"side": 0, "kind": "exists", "selector": {{"shape": "{shape}"}}}}]'
        for shape in ("ball", "unicorn")
    )
    first, second, third, *others = preferences
    rows = [
        replace(first, claims=true, rejected=second.chosen, rejected_claims=false),
        replace(second, claims=false, rejected=first.chosen, rejected_claims=true),
        replace(third, rejected=third.chosen),
        *others,
    ]
    findings = health(tmp_path, small, preferences=rows)
    assert findings["Rejected, yet true"].proportion == Proportion(1, 2)
    assert findings["Chosen, yet false"].proportion == Proportion(1, 2)
    words = [(len(row.chosen.split()), len(row.rejected.split())) for row in rows]
    longer = sum((a > b) + (a == b) / 2 for a, b in words)
    assert findings["Longer"].proportion == Proportion(longer, len(rows))
    means = "{:.1f} words against {:.1f}".format(*np.mean(words, axis=0))
    assert means in findings["Longer"].about
    different = len({(row.chosen, row.rejected) for row in rows})
    assert findings["Repeated"].proportion == Proportion(len(rows) - different, len(rows))
    assert "in 1, chosen and rejected are the same" in findings["Repeated"].about
    beyond = ["Chosen, yet false", "Rejected, yet true", "Repeated"]
    assert not any(findings[name].good for name in beyond)
    off = health(tmp_path / "off", small, preferences=rows, bounds=OFF)
    assert [name for name in beyond if not off[name].good] == ["Chosen, yet false", "Repeated"]


def test_held_out_answers_that_training_rejects_are_counted(tmp_path, small):
    """Of three splits, two are held out; what a held-out row rejects does not count."""
    rows = {row.key: replace(row, chosen=row.key, rejected="b") for row in small.of("preferences")}
    train = [row.key for row in rows.values() if row.split == "train"]
    held = [row.key for row in rows.values() if row.split == "validation"]
    negative = Negative(text="A duck has come.", maker="edited", note="", score=0.5)
    changes = {
        train[0]: {"chosen": "A lamp is on.", "rejected": "a CUP has gone"},
        train[1]: {"chosen": "A dog.", "negatives": (negative,)},
        held[0]: {"chosen": "A cup has gone.", "rejected": "A duck has come."},
        held[1]: {"chosen": "A duck has come."},
    }
    rows |= {key: replace(rows[key], **change) for key, change in changes.items()}
    finding = health(tmp_path, small, preferences=[*rows.values()])["Held out, yet rejected"]
    count = sum(row.split != "train" for row in rows.values())
    assert (finding.proportion, finding.good) == (Proportion(2, count), False)


def test_rejected_texts_that_a_judge_believed_are_counted(tmp_path, served):
    pairs = {row.subject for row in served.of("preferences")}
    judged = {row.subject: row for row in served.of("judged") if row.subject in pairs}
    passed, failed, unrated = [*judged.values()][:3]
    ratings = [
        replace(passed, passed=True, why=""),
        replace(failed, passed=False, why=LOW_RATING),
        replace(unrated, passed=False, why=NO_RATING),
    ]
    texts = {row.key: (row.subject, row.text) for row in served.of("described")}
    rated = dict(texts[row.description] for row in ratings)
    rows = [
        replace(row, rejected=rated.get(row.subject, row.rejected).upper())
        for row in served.of("preferences")
    ]
    findings = health(tmp_path, served, line=LINE_SERVED, judged=ratings, preferences=rows)
    finding = findings["Rejected, yet believed"]
    assert (finding.proportion, finding.good) == (Proportion(1, 2), False)


def test_texts_that_nothing_looked_at_are_counted(tmp_path, small):
    changes = ({"model": "vlm"}, {"model": "vlm", "checks": '{"swapped": 0.5}'}, {"model": "given"})
    notes = ("halves exchanged, unchecked", "of pair q, unchecked", "colour red -> blue")
    differences, preferences = [], []
    rows = zip(small.of("differences"), small.of("preferences"), changes, notes, strict=False)
    for difference, preference, change, note in rows:
        differences.append(replace(difference, **change))
        about = {"subject": difference.subject, "chosen": difference.text}
        preferences.append(replace(preference, claims="[]", rejected_note=note, **about))
    findings = health(tmp_path, small, differences=differences, preferences=preferences)
    shares = {"Chosen, unchecked": Proportion(1, 2), "Rejected, unchecked": Proportion(2, 3)}
    assert {name: findings[name].proportion for name in shares} == shares
    assert not any(findings[name].good for name in shares)


@pytest.mark.parametrize(
    ("bounds", "good"),
    [
        pytest.param(HealthConfig(min_changed_share=0.06), False, id="too little"),
        pytest.param(DEFAULT, True, id="enough"),
    ],
)
def test_the_changed_share_of_a_rejected_image_is_that_of_its_pixels(tmp_path, small, bounds, good):
    """Of 200 pixels 10 are painted, and 10 others so little that nobody sees it."""
    image = Image.new("RGB", (20, 10), "white")
    whole = encode(image, "PNG")
    image.paste("black", (0, 0, 5, 2))
    image.paste((250, 250, 250), (10, 0, 15, 2))
    both = {"images": (whole, whole), "rejected_images": (whole, encode(image, "PNG"))}
    rows = [replace(row, rejected_image_maker="removal", **both) for row in small.of("preferences")]
    finding = health(tmp_path, small, bounds=bounds, preferences=rows)["Rejected images differ"]
    assert (finding.value, finding.good) == ("5.0%", good)


def test_without_preferences_there_is_no_health(tmp_path, small):
    with build_handmade(tmp_path / "dataset", small, until="pairs") as (build, _):
        assert measure_health(Tables(build), HealthConfig()) == []


CHOSEN = {"hits": 45, "of": 50, "value": 0.9, "interval": [0.786, 0.957]}


def audited(folder, *settings):
    """Return the finding of an audit, for a dataset whose texts a served model writes."""
    profile = load_profile("laptop", list(settings))
    planned = Pipeline(profile, "differences").plan()
    return list(judge_audit(folder, planned)), planned


def test_the_share_of_true_texts_is_that_of_the_audit(tmp_path):
    folder = Folder(str(tmp_path))
    [missing], planned = audited(folder)
    assert (missing.value, missing.good) == ("not measured", False)
    write_audit(folder, {"pairs": 60, "chosen": CHOSEN}, mark=mark_writer(planned))
    [finding], _ = audited(folder)
    assert (finding.value, finding.good) == ("90%", True)
    assert "60 planted pairs" in finding.about
    [other], _ = audited(folder, "controls.enabled=false")
    assert (other.value, other.good) == ("not measured", False), "the checks are others"


def test_texts_of_scene_graphs_need_no_audit(tmp_path):
    planned = Pipeline(load_profile("scenes", []), "differences").plan()
    assert list(judge_audit(Folder(str(tmp_path)), planned)) == []


def test_rows_that_a_blind_model_answers_right_are_counted_by_maker(tmp_path, small):
    """A hardness below a half is of a row whose chosen text the model expects."""
    rows = [
        replace(row, rejected_maker=("blind", "edited")[number % 2])
        for number, row in enumerate(small.of("preferences"))
    ]
    measured = [
        row_of(HardnessRow, row.key, source=row.key, preference=row.key, hardness=hardness)
        for row, hardness in zip(rows, (0.9, 0.2, 0.5, 0.1), strict=False)
    ]
    entry = ("hardness", "preferences", PreferenceRow, HardnessRow, "preferences")
    line = (*LINE, entry)
    findings = health(tmp_path, small, line=line, preferences=rows, hardness=measured)
    finding = findings["Expected blind"]
    assert (finding.proportion, finding.good) == (Proportion(2, 4), True)
    assert "blind 0%, edited 100%" in finding.about
    assert "Expected blind" not in health(tmp_path / "unmeasured", small)
