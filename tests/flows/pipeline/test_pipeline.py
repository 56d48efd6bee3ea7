"""Which stages are on: every profile has the same tables, and those that lead nowhere are empty."""

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from pairwright.flows.pipeline.load_profile import load_profile, profile_names
from pairwright.flows.pipeline.pipeline import Pipeline, with_source
from pairwright.flows.pipeline.stages import GROUPS, STAGES, TABLES
from pairwright.schemas.config import ExcludeConfig, Profile, RejectionsConfig
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import PairRow
from pairwright.tasks.sources.readers import READERS
from tests.fixtures.pictures import picture

VECTORS = ["embeddings", "admitted", "neighbours", "similar_pairs"]
STEPS = ["targets", "tags", "boxes", "masks", "elements", "removals", "inspected"]
CAPTIONING = ["captions", "described", "differences", "comparisons"]
TEXTS = ["splits", "swapped", "edited", "retrieved"]
USUAL = [
    "images",
    *VECTORS,
    "pairs",
    *CAPTIONING,
    *TEXTS,
    *STEPS,
    "rejections",
    "withheld",
    "preferences",
]


def photographs(**sections):
    return Profile.model_validate({"source": "folder:/photographs", **sections})


def preferences(**sections):
    return Profile.model_validate({"source": "rlaif-v:/preferences", **sections})


CLIP = {"embedding": {"embedders": ["clip", "dinov2"]}, "rejections": {"scorer": "clip"}}
PHOTOGRAPHS, CHOOSING, GIVEN = photographs(), photographs(**CLIP), preferences(**CLIP)
SERVED = photographs(
    captions={"writer": "served"},
    differences={"writer": "served"},
    comparisons={"writer": "served"},
    questions={"enabled": True},
    controls={"enabled": True, "kinds": ["swapped"]},
    judging={"enabled": True},
    sampled_texts={"enabled": True, "samples": 2},
    counterfactuals={"enabled": True},
)


def inputs_of(profile, until=""):
    """Return what each stage that is on reads."""
    line = Pipeline(profile, until)
    return {stage.name: line.inputs[stage.name] for stage in line.running}


def reads(profile):
    return {name: list(inputs.reads) for name, inputs in inputs_of(profile).items()}


def used(inputs, kind=None):
    return [use.table for use in inputs.uses if kind in (None, use.kind)]


def fingerprints(profile, until=""):
    return {planned.stage.name: planned.fingerprint for planned in Pipeline(profile, until).plan()}


@pytest.fixture
def brought_pairs(monkeypatch):
    """Let a folder bring pairs."""
    reader = replace(READERS["folder"], brings=(PairRow,))
    monkeypatch.setitem(READERS, "folder", reader)


def test_every_table_has_one_name_and_one_writer() -> None:
    assert len(set(TABLES)) == len(STAGES)
    known = {"items"}
    for stage in STAGES:
        assert stage.input_tables <= known, "what a stage reads is written before it"
        known.add(stage.name)
    groups = [stage.group for stage in STAGES]
    assert groups == sorted(groups, key=GROUPS.index)


def test_a_plan_travels() -> None:
    planned = Pipeline(SERVED).plan()
    copies = pickle.loads(pickle.dumps(planned))
    assert [copy.fingerprint for copy in copies] == [stage.fingerprint for stage in planned]


@pytest.mark.parametrize("name", profile_names())
@pytest.mark.parametrize(
    "source", ["folder:/here", "scenes:", "rlaif-v:/here", "spot-the-diff:/here"]
)
def test_every_profile_has_all_tables(name, source) -> None:
    profile = load_profile(name).model_copy(update={"source": source})
    assert [stage.name for stage in Pipeline(profile).stages] == list(TABLES)


def test_a_source_of_images_has_every_stage_that_needs_no_served_model() -> None:
    assert list(inputs_of(PHOTOGRAPHS)) == USUAL


@pytest.mark.usefixtures("brought_pairs")
def test_brought_pairs_are_not_mined() -> None:
    tables = reads(PHOTOGRAPHS)
    assert [name for name in USUAL if name not in tables] == VECTORS
    assert (tables["given_pairs"], tables["pairs"]) == (["items"], ["given_pairs"])
    chosen_by_clip = inputs_of(CHOOSING)
    assert "embeddings" in chosen_by_clip
    assert "neighbours" not in chosen_by_clip


def write_pairs(folder: Path, *, text: str) -> str:
    for number, name in enumerate(("a.png", "b.png")):
        (folder / name).write_bytes(picture(number))
    path = folder / "pairs.csv"
    path.write_text(f"before,after,sentence\na.png,b.png,{text}\n")
    return str(path)


def test_people_s_sentences_describe_their_pairs(tmp_path: Path) -> None:
    source = write_pairs(tmp_path, text="The dog left.")
    profile = with_source(load_profile("scenes"), [source])
    assert profile.differences.writer == ("given",)
    graphs = {"captions", "comparisons", "described", "edited", "targets", "tags", "elements"}
    assert graphs.isdisjoint(inputs_of(profile))
    assert {"differences", "retrieved", "rejections", "preferences"} <= set(inputs_of(profile))


@pytest.mark.parametrize("writer", ["served", "scene-graph"])
def test_writers_that_a_profile_names_stay(tmp_path: Path, writer: str) -> None:
    source = write_pairs(tmp_path, text="The dog left.")
    profile = with_source(load_profile("scenes", [f"differences.writer={writer}"]), [source])
    assert profile.differences.writer == (writer,)


def test_a_source_without_sentences_is_described_as_before(tmp_path: Path) -> None:
    source = write_pairs(tmp_path, text="")
    assert with_source(load_profile("scenes"), [source]).differences.writer == ("scene-graph",)


def test_scenes_beside_sentences_are_composed(tmp_path: Path) -> None:
    source = write_pairs(tmp_path, text="The dog left.")
    profile = with_source(load_profile("scenes"), [source, "scenes:"])
    assert profile.differences.writer == ("scene-graph", "given")
    assert "captions" in inputs_of(profile)


@pytest.mark.parametrize("enabled", [False, True])
def test_brought_preferences_need_nothing_but_images(enabled) -> None:
    profile = preferences(rejections={"enabled": enabled})
    assert reads(profile) == {
        "images": ["items"],
        "given_preferences": ["items"],
        "preferences": ["given_preferences"],
    }
    assert fingerprints(profile) == fingerprints(preferences())


def test_excluded_images_leave_before_the_search() -> None:
    exclude = ExcludeConfig(sources=("folder:/benchmark",), marks=("a",))
    excluding = PHOTOGRAPHS.model_copy(update={"exclude": exclude})
    neighbours = inputs_of(excluding)["neighbours"]
    assert list(neighbours.reads) == ["admitted"]
    vectors = [use.only_in for use in neighbours.uses if use.kind == "vectors"]
    assert vectors == ["admitted"]
    before, after = fingerprints(PHOTOGRAPHS), fingerprints(excluding)
    assert before["embeddings"] == after["embeddings"], "nothing is embedded again"
    assert before["neighbours"] != after["neighbours"]


def test_pairs_by_nouns_need_no_vectors() -> None:
    tables = reads(photographs(pairing="nouns"))
    assert tables.keys() == {*USUAL, "nouns", "noun_pairs"} - set(VECTORS)
    assert (tables["nouns"], tables["noun_pairs"]) == (["images"], ["nouns"])
    assert tables["pairs"] == ["noun_pairs"]


TAGGING = {"tagging": {"taggers": ["scene-graph", "nouns"]}}


@pytest.mark.parametrize(
    ("profile", "texts", "targets"),
    [
        (photographs(**TAGGING), "differences", ["targets"]),
        (preferences(**CLIP, **TAGGING), "given_preferences", []),
    ],
)
def test_nouns_of_texts_come_before_tags(profile, texts, targets) -> None:
    inputs = inputs_of(profile)
    assert list(inputs["mentions"].reads) == [texts]
    assert used(inputs["tags"]) == ["mentions", *targets]
    off = profile.model_copy(update={"rejections": RejectionsConfig(enabled=False)})
    assert {"mentions", "tags"}.isdisjoint(inputs_of(off))
    assert "mentions" not in inputs_of(PHOTOGRAPHS)
    assert "mentions" not in inputs_of(GIVEN)


def test_a_build_stops_after_a_group_or_a_table() -> None:
    assert [stage.name for stage in Pipeline(PHOTOGRAPHS, "mining").stages][-1] == "pairs"
    assert list(inputs_of(PHOTOGRAPHS, "embeddings")) == ["images", "embeddings"]
    with pytest.raises(ConfigError, match="minig: "):
        Pipeline(PHOTOGRAPHS, "minig")


@pytest.mark.usefixtures("brought_pairs")
@pytest.mark.parametrize(("until", "last"), [("mining", "pairs"), ("embeddings", "embeddings")])
def test_a_build_of_brought_pairs_stops_too(until, last) -> None:
    assert list(inputs_of(PHOTOGRAPHS, until)) == ["images", "given_pairs", last]


def test_where_clip_chooses_images_without_an_element_are_embedded() -> None:
    inputs = inputs_of(CHOOSING)
    assert [name for name in inputs if name not in USUAL] == ["fitted"]
    uses = [use for use in inputs["rejections"].uses if use.kind == "vectors"]
    tables = {use.argument: use.table for use in uses}
    assert tables == {"vectors": "embeddings", "candidates": "fitted"}
    assert "fitted" not in inputs_of(PHOTOGRAPHS)


def test_brought_preferences_get_rejected_images_where_clip_chooses() -> None:
    inputs = inputs_of(GIVEN)
    first, last = ["images", "given_preferences", "embeddings"], ["rejections", "preferences"]
    assert list(inputs) == [*first, *STEPS[1:], "fitted", *last]
    assert inputs["tags"].only_in == ("given_preferences",)
    assert [list(inputs[name].reads) for name in last] == [["given_preferences"]] * 2
    assert set(used(inputs["preferences"])) == {"images", "rejections", "removals"}


@pytest.mark.parametrize(
    "model", [{"endpoint": "http://127.0.0.1:8000/v1"}, {"launch": {"enabled": True}}]
)
def test_texts_are_split_by_a_served_model_where_there_is_one(model) -> None:
    chat = {"models": {"chat": model}}
    inputs = inputs_of(preferences(**CLIP, **chat))
    assert [name for name in inputs if name not in inputs_of(GIVEN)] == ["statements"]
    assert "statements" in used(inputs["rejections"])
    by_rules = preferences(**CLIP, **chat, statements={"split": "rules"})
    assert list(inputs_of(by_rules)) == list(inputs_of(GIVEN))
    assert "statements" not in inputs_of(photographs(**chat))


@pytest.mark.parametrize("source", ["folder:/here", "rlaif-v:/here"])
@pytest.mark.parametrize("name", profile_names())
def test_a_table_is_the_same_however_far_a_build_goes(name, source) -> None:
    profile = load_profile(name).model_copy(update={"source": source})
    running = inputs_of(profile).keys()
    whole = fingerprints(profile).items()
    for until in (*GROUPS, "embeddings", "described", "boxes"):
        part = {key: value for key, value in fingerprints(profile, until).items() if key in running}
        assert part.items() <= whole


def test_served_models_have_their_stages() -> None:
    line = Pipeline(SERVED)
    inputs = inputs_of(SERVED)
    groups = {
        group: [stage.name for stage in line.running if stage.group == group] for group in GROUPS
    }
    assert groups["captioning"] == [
        *("captions", "described", "controlled", "judged"),
        *("differences", "comparisons", "questions"),
    ]
    made = ["counterfactual", "sampled", "judged_rejected"]
    assert groups["rejected"] == [*TEXTS, *made, *STEPS, "rejections"]
    writes = {stage.name: stage.writes for stage in line.running}
    assert writes["described"] is writes["differences"]
    assert set(used(inputs["differences"])) == {"described", "controlled", "judged"}
    assert {"counterfactual", "sampled"} <= set(used(inputs["preferences"]))


def test_checks_that_are_off_in_another_language_are_said() -> None:
    settings = ["captions.writer=served", "captions.language=German"]
    caveat = Pipeline(load_profile("scenes", settings)).caveat
    assert "captions.language=German: checks that need English words are off" in caveat
    assert Pipeline(load_profile("scenes", settings[1:])).caveat == "", "nobody is asked"
