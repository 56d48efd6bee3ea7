"""Which stages a build has: those that lead somewhere, and readers in place of makers where the source brings rows."""

import pickle
from dataclasses import replace

import pytest

from flows import stages
from flows.stages import STAGES, plan_stages, stages_of, stages_until
from schemas.config import ExcludeConfig, MiningConfig, Profile
from schemas.errors import ConfigError
from schemas.rows import ComparisonRow, PairRow, PreferenceRow, Row
from schemas.writing import ControlsConfig, JudgingConfig
from tasks.sources.readers import READERS

PHOTOGRAPHS = Profile(source="folder:/photographs")


def bringing(monkeypatch: pytest.MonkeyPatch, *rows: type[Row]) -> dict[str, str]:
    """Return the stages of a source that brings such rows, by name, with the table that each reads."""
    monkeypatch.setitem(stages.READERS, "folder", replace(READERS["folder"], brings=rows))
    return {stage.name: stage.reads for stage in stages_of(PHOTOGRAPHS)}


OPTIONAL = {"questions", "refuted", "counterfactual", "sampled"}
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
    made = ["removals", "swapped", "edited", "retrieved", "refuted", "counterfactual", "sampled"]
    assert [name for name, stage in stages.items() if stage.group == "rejected"] == made
    assert stages["described"].writes is stages["differences"].writes
    assert {use.table for use in stages["differences"].uses} == {"described", "controlled", "judged"}
    assert {"refuted", "counterfactual", "sampled"} <= {use.table for use in stages["preferences"].uses}
    assert [stage.name for stage in stages_until(SERVED, "described")][-1] == "described"


def test_a_check_that_comes_later_leaves_the_descriptions() -> None:
    """They were asked of a model: that is the dear part."""
    unchecked = SERVED.model_copy(update={"controls": ControlsConfig(), "judging": JudgingConfig()})
    fingerprints = [
        {planned.stage.name: planned.fingerprint for planned in plan_stages(profile, stages_of(profile))}
        for profile in (unchecked, SERVED)
    ]
    assert fingerprints[0]["described"] == fingerprints[1]["described"]
    assert fingerprints[0]["differences"] != fingerprints[1]["differences"]
    assert {"controlled", "judged", "refuted"}.isdisjoint(fingerprints[0])


def test_stages_with_checks_travel_between_processes() -> None:
    planned = plan_stages(SERVED, stages_of(SERVED))
    assert [stage.fingerprint for stage in pickle.loads(pickle.dumps(planned))] == [
        stage.fingerprint for stage in planned
    ]
