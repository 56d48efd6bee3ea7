"""Which stages a build has: those that lead somewhere, and readers in place of makers where the source brings rows."""

import pickle
from dataclasses import replace

import pytest

from pairwright.flows import stages
from pairwright.flows.load_profile import load_profile, profile_names
from pairwright.flows.stages import GROUPS, STAGES, plan_stages, stages_of, stages_until, table_names
from pairwright.schemas.config import ExcludeConfig, MiningConfig, Profile, RejectionsConfig, TaggingConfig
from pairwright.schemas.encoders import ClipConfig
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import ComparisonRow, PairRow, PreferenceRow, Row
from pairwright.schemas.writing import ControlsConfig, JudgingConfig
from pairwright.tasks.sources.readers import READERS

PHOTOGRAPHS = Profile(source="folder:/photographs")


def bringing(monkeypatch: pytest.MonkeyPatch, *rows: type[Row]) -> dict[str, str]:
    """Return the stages of a source that brings such rows, by name, with the table that each reads."""
    monkeypatch.setitem(stages.READERS, "folder", replace(READERS["folder"], brings=rows))
    return {stage.name: stage.reads for stage in stages_of(PHOTOGRAPHS)}


OPTIONAL = {"questions", "refuted", "counterfactual", "sampled", "mentions", "fitted"}
USUAL = [stage.name for stage in STAGES if stage.name not in OPTIONAL]


def test_a_source_of_images_has_every_stage_that_needs_no_served_model() -> None:
    assert [stage.name for stage in stages_of(PHOTOGRAPHS)] == USUAL


def test_brought_pairs_are_not_mined(monkeypatch: pytest.MonkeyPatch) -> None:
    found = bringing(monkeypatch, PairRow)
    left_out = [name for name in USUAL if name not in found]
    assert left_out == ["embeddings", "neighbours"]
    assert found["pairs"] == "items"
    assert found["preferences"] != "items"


def test_brought_comparisons_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    found = bringing(monkeypatch, PairRow, ComparisonRow)
    assert (found["pairs"], found["comparisons"]) == ("items", "items")
    assert "differences" in found


def test_brought_preferences_need_nothing_but_images(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bringing(monkeypatch, PreferenceRow) == {"images": "items", "preferences": "items"}


def test_a_limit_on_pairs_is_a_stage_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = PHOTOGRAPHS.model_copy(update={"mining": MiningConfig(max_pairs_per_image=2)})
    reads = {stage.name: stage.reads for stage in stages_of(profile)}
    assert (reads["candidates"], reads["pairs"]) == ("neighbours", "candidates")
    assert [stage.name for stage in stages_until(profile, "mining")][-2:] == ["candidates", "pairs"]
    monkeypatch.setitem(stages.READERS, "folder", replace(READERS["folder"], brings=(PairRow,)))
    reads = {stage.name: stage.reads for stage in stages_of(profile)}
    assert (reads["candidates"], reads["pairs"]) == ("items", "candidates")


EXCLUDING = PHOTOGRAPHS.model_copy(update={"exclude": ExcludeConfig(sources=("folder:/benchmark",))})


def test_excluded_images_leave_before_the_search() -> None:
    stages = {stage.name: stage for stage in stages_of(EXCLUDING)}
    assert list(stages)[:5] == ["images", "embeddings", "admitted", "neighbours", "pairs"]
    assert stages["admitted"].reads == "embeddings"
    for name in ("neighbours", "pairs"):
        use = next(use for use in stages[name].uses if use.kind == "vectors")
        assert (use.table, use.argument) == ("admitted", "vectors")
    own = plan_stages(PHOTOGRAPHS, stages_until(PHOTOGRAPHS, "embeddings"))
    assert plan_stages(EXCLUDING, stages_until(EXCLUDING, "embeddings")) == own  # nothing is embedded again


def test_brought_pairs_of_excluded_images_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(stages.READERS, "folder", replace(READERS["folder"], brings=(PairRow,)))
    limited = EXCLUDING.model_copy(update={"mining": MiningConfig(max_pairs_per_image=2)})
    reads = {stage.name: stage.reads for stage in stages_until(limited, "mining")}
    assert reads == {
        "images": "items",
        "embeddings": "images",
        "admitted": "embeddings",
        "brought": "items",
        "candidates": "brought",
        "pairs": "candidates",
    }


def test_pairs_by_nouns_need_no_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = PHOTOGRAPHS.model_copy(update={"pairing": "nouns"})
    reads = {stage.name: stage.reads for stage in stages_of(profile)}
    assert {"embeddings", "neighbours"}.isdisjoint(reads)
    assert (reads["nouns"], reads["pairs"], reads["differences"]) == ("images", "nouns", "pairs")
    assert reads.keys() - {"nouns"} == set(USUAL) - {"embeddings", "neighbours"}
    assert [stage.name for stage in stages_until(profile, "mining")] == ["images", "nouns", "pairs"]
    monkeypatch.setitem(stages.READERS, "folder", replace(READERS["folder"], brings=(PairRow,)))
    assert [stage.name for stage in stages_until(profile, "mining")] == ["images", "pairs"]


def test_excluded_images_and_limits_hold_for_pairs_by_nouns_too() -> None:
    mining = MiningConfig(max_pairs_per_image=2)
    profile = EXCLUDING.model_copy(update={"pairing": "nouns", "mining": mining})
    assert {stage.name: stage.reads for stage in stages_until(profile, "mining")} == {
        "images": "items",
        "embeddings": "images",
        "admitted": "embeddings",
        "nouns": "images",
        "brought": "nouns",
        "candidates": "brought",
        "pairs": "candidates",
    }


def test_a_build_stops_after_a_group_or_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [stage.name for stage in stages_until(PHOTOGRAPHS, "mining")] == [s.name for s in STAGES[:4]]
    assert [stage.name for stage in stages_until(PHOTOGRAPHS, "embeddings")] == ["images", "embeddings"]
    bringing(monkeypatch, PairRow)
    assert [stage.name for stage in stages_until(PHOTOGRAPHS, "mining")] == ["images", "pairs"]
    assert [stage.name for stage in stages_until(PHOTOGRAPHS, "embeddings")] == ["images", "embeddings"]
    assert [stage.name for stage in stages_until(EXCLUDING, "admitted")] == ["images", "embeddings", "admitted"]
    nouns = PHOTOGRAPHS.model_copy(update={"pairing": "nouns"})
    assert [stage.name for stage in stages_until(nouns, "nouns")] == ["images", "nouns"]
    with pytest.raises(ConfigError, match="minig: no such stage"):
        stages_until(PHOTOGRAPHS, "minig")


STEPS = ["tags", "boxes", "masks", "elements", "removals", "inspected"]
CLIP = {"embedding": {"embedders": ["clip", "dinov2"]}, "rejections": {"scorer": "clip"}}
CHOOSING = Profile.model_validate({"source": "folder:/photographs", **CLIP})
GIVEN = CHOOSING.model_copy(update={"source": "rlaif-v:/preferences"})


def fingerprints(profile: Profile, until: str = "") -> dict[str, str]:
    return {one.stage.name: one.fingerprint for one in plan_stages(profile, stages_until(profile, until))}


def test_without_rejected_images_nothing_is_removed() -> None:
    off = PHOTOGRAPHS.model_copy(update={"rejections": RejectionsConfig(scorer="off")})
    stages = {stage.name: stage for stage in stages_of(off)}
    assert list(stages) == [name for name in USUAL if name not in (*STEPS, "rejections")]
    assert {"rejections", "removals"}.isdisjoint(use.table for use in stages["preferences"].uses)


def test_where_texts_tag_their_nouns_are_found_first() -> None:
    both = TaggingConfig(taggers=("scene-graph", "nouns"))
    for profile, texts in ((PHOTOGRAPHS, "differences"), (GIVEN, "given")):
        stages = {stage.name: stage for stage in stages_of(profile.model_copy(update={"tagging": both}))}
        names = list(stages)
        assert names[names.index("mentions") + 1] == "tags"
        assert stages["mentions"].reads == texts
        assert [use.table for use in stages["tags"].uses] == ["mentions"]
        assert "mentions" not in {stage.name for stage in stages_of(profile)}
    off = PHOTOGRAPHS.model_copy(update={"tagging": both, "rejections": RejectionsConfig(scorer="off")})
    assert {"mentions", "tags"}.isdisjoint(stage.name for stage in stages_of(off))


def test_where_clip_chooses_images_without_an_element_are_embedded() -> None:
    stages = {stage.name: stage for stage in stages_of(CHOOSING)}
    assert [name for name in stages if name not in USUAL] == ["fitted"]
    names = list(stages)
    assert names[names.index("removals") :][:4] == ["removals", "inspected", "fitted", "rejections"]
    used = {use.argument: use.table for use in stages["rejections"].uses if use.kind == "vectors"}
    assert used == {"vectors": "embeddings", "candidates": "fitted"}
    assert "fitted" not in fingerprints(PHOTOGRAPHS)
    assert [stage.name for stage in stages_until(CHOOSING, "fitted")][-1] == "fitted"


def test_clip_chooses_among_images_of_brought_pairs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are embedded for that alone; those that are kept out are not."""
    monkeypatch.setitem(stages.READERS, "folder", replace(READERS["folder"], brings=(PairRow,)))
    found = [stage.name for stage in stages_of(CHOOSING)]
    assert "embeddings" in found
    assert "neighbours" not in found
    excluding = CHOOSING.model_copy(update={"exclude": ExcludeConfig(sources=("folder:/benchmark",))})
    (choosing,) = (stage for stage in stages_of(excluding) if stage.name == "rejections")
    assert {use.table for use in choosing.uses if use.kind == "vectors"} == {"admitted", "fitted"}


def test_the_weights_of_the_images_vectors_are_those_of_the_removals() -> None:
    """Whoever runs one of these stages has the other's pin, so that no weights are missing, nor other ones taken."""
    for profile, until in ((CHOOSING, ""), (CHOOSING, "fitted"), (CHOOSING, "rejected"), (GIVEN, "fitted")):
        pinned = {stage.config for stage in stages_until(profile, until) if stage.pin}
        assert "embedding" in pinned
    clip = ClipConfig(model="ViT-B-32", revision="abc")
    embedding = CHOOSING.embedding.model_copy(update={"clip": clip})
    other = CHOOSING.model_copy(update={"embedding": embedding})
    assert other.fitted.clip == clip
    assert other.section("rejections") == other.rejections.model_copy(update={"clip": clip})
    before, after = fingerprints(CHOOSING), fingerprints(other)
    assert {name for name in before if before[name] != after[name]} >= {"embeddings", "fitted", "rejections"}
    assert before["images"] == after["images"]


def test_brought_preferences_get_rejected_images_where_clip_chooses() -> None:
    stages = {stage.name: stage for stage in stages_of(GIVEN)}
    assert {name: stage.reads for name, stage in stages.items()} == {
        "images": "items",
        "given": "items",
        "embeddings": "images",
        "tags": "images",
        "boxes": "tags",
        "masks": "boxes",
        "elements": "masks",
        "removals": "elements",
        "inspected": "removals",
        "fitted": "removals",
        "rejections": "given",
        "preferences": "given",
    }
    assert {stage.only_in for stage in stages.values()} == {""}
    assert {use.table for use in stages["preferences"].uses} == {"rejections", "removals"}
    known = set(stages) | {"items"}
    for stage in stages.values():
        assert {use.table for use in stage.uses} | {stage.reads} <= known


@pytest.mark.parametrize("scorer", ["off", "scene-graph"])
def test_brought_preferences_are_else_as_they_were(scorer: str) -> None:
    profile = Profile.model_validate({"source": "rlaif-v:/preferences", "rejections": {"scorer": scorer}})
    assert {stage.name: stage.reads for stage in stages_of(profile)} == {"images": "items", "preferences": "items"}
    assert fingerprints(profile) == fingerprints(Profile(source="rlaif-v:/preferences"))


@pytest.mark.parametrize(
    ("until", "last"),
    [
        ("sources", "given"),
        ("given", "given"),
        ("mining", "embeddings"),
        ("tags", "tags"),
        ("fitted", "fitted"),
        ("rejected", "rejections"),
        ("rejections", "rejections"),
        ("preferences", "preferences"),
        ("", "preferences"),
    ],
)
def test_a_build_of_brought_preferences_stops_where_it_should(until: str, last: str) -> None:
    stages = stages_until(GIVEN, until)
    assert stages[-1].name == last
    assert len(plan_stages(GIVEN, stages)) == len(stages), "all that a stage reads is there"


@pytest.mark.parametrize("profile", profile_names())
@pytest.mark.parametrize("kind", ["folder", "scenes", "rlaif-v", "spot-the-diff"])
def test_all_stages_of_the_profiles_can_be_planned_up_to_any_table(profile: str, kind: str) -> None:
    chosen = load_profile(profile).model_copy(update={"source": f"{kind}:/here"})
    whole = fingerprints(chosen)
    for until in (*GROUPS, *table_names()):
        planned = plan_stages(chosen, stages_until(chosen, until))
        assert [one.fingerprint for one in pickle.loads(pickle.dumps(planned))] == [one.fingerprint for one in planned]
        both = [one for one in planned if one.stage.name in whole]
        assert {one.stage.name: one.fingerprint for one in both} == {
            one.stage.name: whole[one.stage.name] for one in both
        }


SERVED = Profile.model_validate(
    {
        "source": "folder:/photographs",
        "captions": {"writer": "served"},
        "differences": {"writer": "served"},
        "comparisons": {"writer": "served"},
        "questions": {"wanted": True},
        "controls": {"swapped": True},
        "judging": {"wanted": True},
        "sampled_texts": {"samples": 2},
        "counterfactuals": {"wanted": True},
    }
)


def test_served_models_have_their_stages() -> None:
    stages = {stage.name: stage for stage in stages_of(SERVED)}
    captioning = ["captions", "described", "controlled", "judged", "differences", "comparisons", "questions"]
    assert [name for name, stage in stages.items() if stage.group == "captioning"] == captioning
    made = ["swapped", "edited", "retrieved", "refuted", "counterfactual", "sampled", *STEPS, "rejections"]
    assert [name for name, stage in stages.items() if stage.group == "rejected"] == made
    assert stages["described"].writes is stages["differences"].writes
    assert {use.table for use in stages["differences"].uses} == {"described", "controlled", "judged"}
    assert {"refuted", "counterfactual", "sampled"} <= {use.table for use in stages["preferences"].uses}
    assert [stage.name for stage in stages_until(SERVED, "described")][-1] == "described"


def test_a_check_that_comes_later_leaves_the_descriptions() -> None:
    """They were asked of a model: that is the dear part."""
    unchecked = SERVED.model_copy(update={"controls": ControlsConfig(), "judging": JudgingConfig()})
    before, after = fingerprints(unchecked), fingerprints(SERVED)
    assert before["described"] == after["described"]
    assert before["differences"] != after["differences"]
    assert {"controlled", "judged", "refuted"}.isdisjoint(before)


def test_stages_with_checks_travel_between_processes() -> None:
    planned = plan_stages(SERVED, stages_of(SERVED))
    assert [stage.fingerprint for stage in pickle.loads(pickle.dumps(planned))] == [
        stage.fingerprint for stage in planned
    ]
