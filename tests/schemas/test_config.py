"""What a profile may say: wrong values are refused by name, and only what changes rows changes
fingerprints."""

from typing import Any

import pytest
from pydantic import ValidationError

from pairwright.flows.pipeline.pipeline import Pipeline
from pairwright.flows.pipeline.stages import BY_NAME
from pairwright.schemas.config import Profile, ResolvedProfile, resolve

START = Profile()
STAGES = Pipeline(START).running


def _change(values: dict[str, Any]) -> Profile:
    """Return the default profile with some fields ("mining.gamma") set."""
    dump = START.model_dump()
    for path, value in values.items():
        *sections, last = path.split(".")
        place = dump
        for section in sections:
            place = place[section]
        place[last] = value
    return Profile.model_validate(dump)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("images.min_side", "wide"),
        ("seed", -1),
        ("embedding.embedders", ()),
        ("embedding.embedders", ("sift",)),
        ("mining.gamma", float("nan")),
        ("mining.weights", (0.5, 0)),
        ("mining.nonsense", 1),
        ("run.rows_per_shard_of", {"images": 0}),
        ("nonsense", 1),
    ],
)
def test_a_wrong_value_is_refused_and_its_field_named(path: str, value: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        _change({path: value})
    places = [".".join(map(str, error["loc"])) for error in caught.value.errors()]
    assert places
    assert all(place.startswith(path) for place in places)


@pytest.mark.parametrize(
    "field", ["mining.seed", "scenes.seed", "inspection.detection", "rejections.clip"]
)
def test_what_the_profile_fills_in_is_refused_by_hand(field: str) -> None:
    section, _, name = field.partition(".")
    with pytest.raises(ValidationError, match=field):
        Profile.model_validate({section: {name: getattr(getattr(START, section), name)}})


def test_one_seed_is_that_of_every_section_and_moves_what_is_drawn() -> None:
    seeded = _change({"seed": 5})
    assert [
        BY_NAME[name].configure(seeded).seed
        for name in ("similar_pairs", "captions", "preferences")
    ] == [
        5,
        5,
        5,
    ]
    assert seeded.sources.scenes.seed == 5
    assert Profile.model_validate(seeded.model_dump(mode="json")) == seeded
    changed = _changed_stages({"seed": 5})
    assert {"images", "embeddings", "neighbours"}.isdisjoint(changed)
    assert {"pairs", "captions", "differences", "splits", "preferences"} <= changed


def test_a_profile_survives_json_and_has_its_source_in_parts() -> None:
    changed = _change(
        {"mining.gamma": 0.2, "embedding.embedders": ("gradients",), "mining.weights": (1.0,)}
    )
    assert Profile.model_validate(changed.model_dump(mode="json")) == changed != START
    source = _change({"source": "folder:/data/a:b", "images.min_side": 40}).sources
    assert (source.kind, source.path, source.images.min_side) == ("folder", "/data/a:b", 40)


def _changed_stages(values: dict[str, Any]) -> set[str]:
    before, after = (Pipeline(profile).plan() for profile in (START, _change(values)))
    return {
        a.stage.name for a, b in zip(before, after, strict=True) if a.fingerprint != b.fingerprint
    }


NAMES = [stage.name for stage in STAGES]


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
    assert _changed_stages(values) == set()


@pytest.mark.parametrize(
    ("values", "first"),
    [
        ({"source": "folder:x"}, "images"),
        ({"search.k": 7}, "neighbours"),
        ({"captions.max_tokens": 100}, "captions"),
        ({"comparisons.max_tokens": 100}, "comparisons"),
        ({"removals.feather_pixels": 4}, "removals"),
        ({"preferences.test_share": 0.2}, "splits"),
    ],
)
def test_what_changes_rows_changes_that_stage_and_those_after_it(
    values: dict[str, Any], first: str
) -> None:
    changed = _changed_stages(values)
    assert first in changed
    assert NAMES[-1] in changed or first == "comparisons"
    by_name = {stage.name: stage for stage in STAGES}
    for name in NAMES:
        if by_name[name].tables & changed:
            assert name in changed
        elif by_name[name].config != by_name[first].config:
            assert name not in changed


def test_what_was_found_stands_for_what_is_not_set_and_is_no_setting() -> None:
    found = {"embedding.clip.revision": "abc", "models.chat.model": "tiny", "exclude.marks": ("m",)}
    resolved = resolve(_change({"captions.writer": "served"}), found)
    assert (
        BY_NAME["embeddings"].configure(resolved).clip.revision
        == BY_NAME["fitted"].configure(resolved).clip.revision
        == "abc"
    )
    assert BY_NAME["captions"].configure(resolved).served.model == "tiny"
    assert BY_NAME["admitted"].configure(resolved).marks == ("m",)
    assert (resolved.embedding.clip.revision, resolved.models, resolved.exclude.marks) == (
        "",
        {},
        (),
    )
    again = ResolvedProfile.model_validate_json(resolved.model_dump_json())
    assert again == resolved
    assert BY_NAME["admitted"].configure(again) == BY_NAME["admitted"].configure(resolved)
    with pytest.raises(ValidationError, match=r"exclude\.marks"):
        _change({"exclude.marks": ("m",)})
