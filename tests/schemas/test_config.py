"""What a profile may say: wrong values are refused by name, and only what changes rows changes
fingerprints."""

from typing import Any

import pytest
from pydantic import ValidationError

from pairwright.flows.pipeline.pipeline import Pipeline
from pairwright.flows.pipeline.stages import BY_NAME
from pairwright.schemas.config import Profile, ResolvedProfile, add_findings

START = Profile()
STAGES = {stage.name: stage for stage in Pipeline(START).running}


def changed(values: dict[str, Any]) -> Profile:
    """Return the default profile with some fields ("mining.gamma") set."""
    dump = START.model_dump()
    for path, value in values.items():
        *sections, last = path.split(".")
        target = dump
        for section in sections:
            target = target[section]
        target[last] = value
    return Profile.model_validate(dump)


def changed_stages(values: dict[str, Any]) -> set[str]:
    before, after = (Pipeline(profile).plan() for profile in (START, changed(values)))
    both = zip(before, after, strict=True)
    return {old.stage.name for old, new in both if old.fingerprint != new.fingerprint}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("images.min_side", "wide"),
        ("seed", -1),
        ("embedding.embedders", ()),
        ("mining.weights", (0.5, 0)),
        ("run.rows_per_shard_of", {"images": 0}),
        ("nonsense", 1),
    ],
)
def test_a_wrong_value_is_refused_and_its_field_named(path: str, value: Any) -> None:
    with pytest.raises(ValidationError) as error:
        changed({path: value})
    places = [".".join(map(str, each["loc"])) for each in error.value.errors()]
    assert places
    assert all(target.startswith(path) for target in places)


@pytest.mark.parametrize(
    "field", ["mining.seed", "scenes.seed", "inspection.detection", "rejections.clip"]
)
def test_what_the_profile_fills_in_is_refused_by_hand(field: str) -> None:
    section, _, name = field.partition(".")
    with pytest.raises(ValidationError, match=field):
        Profile.model_validate({section: {name: getattr(getattr(START, section), name)}})


def test_one_seed_moves_what_is_drawn() -> None:
    seeded = changed({"seed": 5})
    assert seeded.source_config.scenes.seed == 5
    for name in ("similar_pairs", "captions", "preferences"):
        assert BY_NAME[name].configure(seeded).seed == 5
    assert Profile.model_validate(seeded.model_dump(mode="json")) == seeded
    moved = changed_stages({"seed": 5})
    assert moved.isdisjoint({"images", "embeddings", "neighbours"})
    assert moved >= {"pairs", "captions", "differences", "splits", "preferences"}


def test_a_profile_survives_json_and_has_its_source_in_parts() -> None:
    values = {"mining.gamma": 0.2, "embedding.embedders": ("gradients",), "mining.weights": (1.0,)}
    profile = changed(values)
    assert Profile.model_validate(profile.model_dump(mode="json")) == profile != START
    source = changed({"source": "folder:/data/a:b", "images.min_side": 40}).source_config
    assert (source.kind, source.path, source.images.min_side) == ("folder", "/data/a:b", 40)


@pytest.mark.parametrize(
    "values",
    [
        {"run.rows_per_shard": 7},
        {"run.rows_per_shard_of": {"images": 3}},
        {"source": "scenes:elsewhere"},
        {"scenes.worlds": 3},
    ],
)
def test_what_changes_no_row_of_an_item_changes_no_fingerprint(values: dict[str, Any]) -> None:
    assert changed_stages(values) == set()


@pytest.mark.parametrize(
    ("values", "first", "last"),
    [
        ({"source": "folder:x"}, "images", "preferences"),
        ({"search.k": 7}, "neighbours", "preferences"),
        ({"captions.max_tokens": 100}, "captions", "preferences"),
        ({"comparisons.max_tokens": 100}, "comparisons", "comparisons"),
        ({"removals.feather_pixels": 4}, "removals", "preferences"),
        ({"preferences.test_share": 0.2}, "splits", "preferences"),
    ],
)
def test_what_changes_rows_changes_that_stage_and_those_after_it(
    values: dict[str, Any], first: str, last: str
) -> None:
    moved = changed_stages(values)
    assert moved >= {first, last}
    after = {name for name, stage in STAGES.items() if stage.input_tables & moved}
    assert after <= moved
    same = {name for name, stage in STAGES.items() if stage.config == STAGES[first].config}
    assert moved <= after | same


def test_what_was_found_stands_for_what_is_not_set_and_is_no_setting() -> None:
    findings = {"embedding.clip.revision": "abc", "models.chat.model": "tiny"}
    findings["exclude.marks"] = ("m",)
    profile = add_findings(changed({"captions.writer": "served"}), findings)
    for name in ("embeddings", "fitted"):
        assert BY_NAME[name].configure(profile).clip.revision == "abc"
    assert BY_NAME["captions"].configure(profile).served.model == "tiny"
    assert BY_NAME["admitted"].configure(profile).marks == ("m",)
    assert profile.embedding.clip.revision == ""
    assert profile.models == {}
    assert profile.exclude.marks == ()
    again = ResolvedProfile.model_validate_json(profile.model_dump_json())
    assert again == profile
    assert BY_NAME["admitted"].configure(again) == BY_NAME["admitted"].configure(profile)
    with pytest.raises(ValidationError, match=r"exclude\.marks"):
        changed({"exclude.marks": ("m",)})
