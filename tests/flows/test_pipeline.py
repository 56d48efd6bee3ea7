"""Which stages are on: every profile has the same tables, and those that lead nowhere are empty."""

import pickle
from dataclasses import replace

import pytest

from pairwright.flows.pipeline import pipeline
from pairwright.flows.pipeline.load_profile import load_profile, profile_names
from pairwright.flows.pipeline.pipeline import Pipeline
from pairwright.flows.pipeline.stages import GROUPS, STAGES, TABLES
from pairwright.schemas.config import ExcludeConfig, Profile, RejectionsConfig, TaggingConfig
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import PairRow, Row
from pairwright.tasks.sources.readers import READERS
from pairwright.tasks.store.stage import Inputs

PHOTOGRAPHS = Profile(source="folder:/photographs")
EXCLUDING = PHOTOGRAPHS.model_copy(
    update={"exclude": ExcludeConfig(sources=("folder:/benchmark",), marks=("a",))}
)
VECTORS = ["embeddings", "admitted", "neighbours", "similar_pairs"]
STEPS = ["targets", "tags", "boxes", "masks", "elements", "removals", "inspected"]
CAPTIONING = ["captions", "described", "differences", "comparisons"]
TEXTS = ["splits", "swapped", "edited", "retrieved"]
USUAL = ["images", *VECTORS, "pairs", *CAPTIONING, *TEXTS, *STEPS, "rejections", "preferences"]


def on(profile: Profile, until: str = "") -> dict[str, Inputs]:
    pipeline = Pipeline(profile, until)
    return {stage.name: pipeline.inputs[stage.name] for stage in pipeline.running}


def reads(profile: Profile, until: str = "") -> dict[str, list[str]]:
    return {name: list(inputs.reads) for name, inputs in on(profile, until).items()}


def bring(monkeypatch: pytest.MonkeyPatch, *rows: type[Row]) -> None:
    """Let a folder bring such rows."""
    monkeypatch.setitem(pipeline.READERS, "folder", replace(READERS["folder"], brings=rows))


def fingerprints(profile: Profile, until: str = "") -> dict[str, str]:
    return {one.stage.name: one.fingerprint for one in Pipeline(profile, until).plan()}


def test_every_table_has_one_name_and_one_writer_and_travels() -> None:
    assert len(set(TABLES)) == len(STAGES)
    known = {"items"}
    for stage in STAGES:
        assert stage.tables <= known, "what a stage reads is written before it"
        known.add(stage.name)
    assert [stage.group for stage in STAGES] == sorted(
        (stage.group for stage in STAGES), key=GROUPS.index
    )
    planned = Pipeline(SERVED).plan()
    assert [stage.fingerprint for stage in pickle.loads(pickle.dumps(planned))] == [
        stage.fingerprint for stage in planned
    ]


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_has_all_tables(name: str) -> None:
    for source in ("folder:/here", "scenes:", "rlaif-v:/here", "spot-the-diff:/here"):
        profile = load_profile(name).model_copy(update={"source": source})
        assert [stage.name for stage in Pipeline(profile).stages] == list(TABLES)


def test_a_source_of_images_has_every_stage_that_needs_no_served_model() -> None:
    assert list(on(PHOTOGRAPHS)) == USUAL


def test_brought_pairs_are_not_mined(monkeypatch: pytest.MonkeyPatch) -> None:
    bring(monkeypatch, PairRow)
    found = reads(PHOTOGRAPHS)
    assert [name for name in USUAL if name not in found] == VECTORS
    assert (found["given_pairs"], found["pairs"]) == (["items"], ["given_pairs"])


@pytest.mark.parametrize("enabled", [False, True])
def test_brought_preferences_need_nothing_but_images(enabled: bool) -> None:
    profile = Profile.model_validate(
        {"source": "rlaif-v:/preferences", "rejections": {"enabled": enabled}}
    )
    assert reads(profile) == {
        "images": ["items"],
        "given_preferences": ["items"],
        "preferences": ["given_preferences"],
    }
    assert fingerprints(profile) == fingerprints(Profile(source="rlaif-v:/preferences"))


def test_excluded_images_leave_before_the_search() -> None:
    found = on(EXCLUDING)
    assert list(found["neighbours"].reads) == ["admitted"]
    assert [use.only_in for use in found["neighbours"].uses if use.kind == "vectors"] == [
        "admitted"
    ]
    own, excluding = fingerprints(PHOTOGRAPHS), fingerprints(EXCLUDING)
    assert own["embeddings"] == excluding["embeddings"]  # nothing is embedded again
    assert own["neighbours"] != excluding["neighbours"]


def test_pairs_by_nouns_need_no_vectors_and_nouns_of_texts_come_first() -> None:
    nouns = reads(PHOTOGRAPHS.model_copy(update={"pairing": "nouns"}))
    assert nouns.keys() == {*USUAL, "nouns", "noun_pairs"} - set(VECTORS)
    assert (nouns["nouns"], nouns["noun_pairs"], nouns["pairs"]) == (
        ["images"],
        ["nouns"],
        ["noun_pairs"],
    )
    both = TaggingConfig(taggers=("scene-graph", "nouns"))
    of_pairs, of_preferences = (
        (PHOTOGRAPHS, "differences", ["targets"]),
        (GIVEN, "given_preferences", []),
    )
    for profile, texts, targets in (of_pairs, of_preferences):
        found = on(profile.model_copy(update={"tagging": both}))
        assert list(found["mentions"].reads) == [texts]
        assert [use.table for use in found["tags"].uses] == ["mentions", *targets]
        assert "mentions" not in on(profile)
    off = PHOTOGRAPHS.model_copy(
        update={"tagging": both, "rejections": RejectionsConfig(enabled=False)}
    )
    assert {"mentions", "tags"}.isdisjoint(on(off))


def test_a_build_stops_after_a_group_or_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [stage.name for stage in Pipeline(PHOTOGRAPHS, "mining").stages][-1] == "pairs"
    assert list(on(PHOTOGRAPHS, "embeddings")) == ["images", "embeddings"]
    bring(monkeypatch, PairRow)
    assert list(on(PHOTOGRAPHS, "mining")) == ["images", "given_pairs", "pairs"]
    assert list(on(PHOTOGRAPHS, "embeddings")) == ["images", "given_pairs", "embeddings"]
    with pytest.raises(ConfigError, match="minig: "):
        Pipeline(PHOTOGRAPHS, "minig")


CLIP = {"embedding": {"embedders": ["clip", "dinov2"]}, "rejections": {"scorer": "clip"}}
CHOOSING = Profile.model_validate({"source": "folder:/photographs", **CLIP})
GIVEN = CHOOSING.model_copy(update={"source": "rlaif-v:/preferences"})


def test_where_clip_chooses_images_without_an_element_are_embedded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = on(CHOOSING)
    assert [name for name in found if name not in USUAL] == ["fitted"]
    used = {use.argument: use.table for use in found["rejections"].uses if use.kind == "vectors"}
    assert used == {"vectors": "embeddings", "candidates": "fitted"}
    assert "fitted" not in on(PHOTOGRAPHS)
    bring(monkeypatch, PairRow)  # they are embedded for that alone
    assert "embeddings" in on(CHOOSING)
    assert "neighbours" not in on(CHOOSING)


def test_brought_preferences_get_rejected_images_where_clip_chooses() -> None:
    found = on(GIVEN)
    assert list(found) == [
        "images",
        "given_preferences",
        "embeddings",
        *STEPS[1:],
        "fitted",
        "rejections",
        "preferences",
    ]
    assert found["tags"].only_in == ("given_preferences",)
    assert (
        list(found["rejections"].reads) == list(found["preferences"].reads) == ["given_preferences"]
    )
    assert {use.table for use in found["preferences"].uses} == {"images", "rejections", "removals"}


@pytest.mark.parametrize(
    "model", [{"endpoint": "http://127.0.0.1:8000/v1"}, {"launch": {"enabled": True}}]
)
def test_texts_are_split_by_a_served_model_where_there_is_one(model) -> None:
    chat = {"models": {"chat": model}}
    served = Profile.model_validate({"source": "rlaif-v:/preferences", **CLIP, **chat})
    found = on(served)
    assert [name for name in found if name not in on(GIVEN)] == ["statements"]
    assert "statements" in {use.table for use in found["rejections"].uses}
    rules = Profile.model_validate(
        {"source": "rlaif-v:/here", **CLIP, **chat, "statements": {"split": "rules"}}
    )
    assert list(on(rules)) == list(on(GIVEN))
    assert "statements" not in on(Profile.model_validate({"source": "folder:/photographs", **chat}))


@pytest.mark.parametrize("source", ["folder:/here", "rlaif-v:/here"])
def test_a_table_is_the_same_however_far_a_build_goes(source: str) -> None:
    for name in profile_names():
        chosen = load_profile(name).model_copy(update={"source": source})
        whole, running = fingerprints(chosen), set(on(chosen))
        for until in (*GROUPS, "embeddings", "described", "boxes"):
            found = Pipeline(chosen, until).plan()
            assert all(
                one.fingerprint == whole[one.stage.name]
                for one in found
                if one.stage.name in running
            )


SERVED = Profile.model_validate(
    {
        "source": "folder:/photographs",
        "captions": {"writer": "served"},
        "differences": {"writer": "served"},
        "comparisons": {"writer": "served"},
        "questions": {"enabled": True},
        "controls": {"enabled": True, "kinds": ["swapped"]},
        "judging": {"enabled": True},
        "sampled_texts": {"enabled": True, "samples": 2},
        "counterfactuals": {"enabled": True},
    }
)


def test_served_models_have_their_stages() -> None:
    stages, running = on(SERVED), Pipeline(SERVED).running
    captioning = [
        "captions",
        "described",
        "controlled",
        "judged",
        "differences",
        "comparisons",
        "questions",
    ]
    assert [stage.name for stage in running if stage.group == "captioning"] == captioning
    made = [*TEXTS, "counterfactual", "sampled", "judged_rejected", *STEPS, "rejections"]
    assert [stage.name for stage in running if stage.group == "rejected"] == made
    writes = {stage.name: stage.writes for stage in running}
    assert writes["described"] is writes["differences"]
    assert {use.table for use in stages["differences"].uses} == {
        "described",
        "controlled",
        "judged",
    }
    assert {"counterfactual", "sampled"} <= {use.table for use in stages["preferences"].uses}
