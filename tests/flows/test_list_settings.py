"""Tests of the list of settings: it has each field of the models, and says what the models hold."""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pairwright.flows.pipeline.list_settings import list_profiles, list_settings
from pairwright.flows.pipeline.load_profile import load_profile, profile_names
from pairwright.schemas.config import Profile
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.section import Section
from pairwright.schemas.training import TrainConfig


def leaves(schema: dict[str, Any], root: dict[str, Any], place: str = "") -> Iterator[str]:
    """Yield the names of the values that a JSON schema has places for, by another way than the
    list's own."""
    for name, field in schema["properties"].items():
        described = field.get(
            "additionalProperties", next(iter(field.get("patternProperties", {}).values()), {})
        )
        if "$ref" in described:  # several by name, of which the list has one at least
            field, name = described, f"{name}.chat"
        inner = [one for one in (field, *field.get("anyOf", [])) if "$ref" in one]
        found = root["$defs"][inner[0]["$ref"].rpartition("/")[2]] if inner else {}
        if "properties" in found:
            yield from leaves(found, root, f"{place}{name}.")
        else:
            yield f"{place}{name}"


@pytest.mark.parametrize(("kind", "command"), [(Profile, "build"), (TrainConfig, "train")])
def test_every_field_of_the_models_is_listed_once(kind: type[Section], command: str) -> None:
    schema = kind.model_json_schema()
    fields = list(leaves(schema, schema))
    listed = [one.name for one in list_settings() if one.command == command]
    assert sorted(listed) == sorted(name for name in fields if name in set(listed))
    for unlisted in set(fields) - set(listed):  # no setting: it cannot be set
        with pytest.raises(ConfigError):
            load_profile("scenes", [f"{unlisted}=1"])
    assert all(one.meaning and one.type for one in list_settings())


def test_a_listed_value_can_be_set() -> None:
    for one in list_settings(profile="laptop"):
        if one.command == "build":
            load_profile(
                "laptop",
                [f"{one.name}={yaml.safe_dump(one.value, default_flow_style=True).strip()}"],
            )


def test_the_list_says_what_the_models_hold() -> None:
    (found,) = list_settings("mining.min_similarity", profile="scenes")
    assert (found.type, found.range, found.default, found.value) == ("number", "0 to 1", 0.78, 0.2)
    (found,) = list_settings("train.objective")
    assert found.default is None
    assert "adpo" in found.type
    assert {one.name.partition(".")[0] for one in list_settings("run")} == {"run"}
    assert {one.command for one in list_settings("train")} == {"train"}
    with pytest.raises(ConfigError):
        list_settings("minin")
    assert [one["name"] for one in list_profiles()] == profile_names()
    assert all(one["about"] for one in list_profiles())


@pytest.mark.parametrize("script", ["write_pages.py", "write_reference.py"])
def test_the_pages_of_the_documentation_are_what_the_source_gives(script: str) -> None:
    docs = Path(__file__).parents[2] / "docs"
    for name, write in runpy.run_path(str(docs / script))["PAGES"].items():
        assert (docs / "reference" / name).read_text(encoding="utf-8") == write(), (
            "write them again with: make docs"
        )


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("minning", "mining"),
        ("train.optimizer", "train.optimiser"),
        ("max_similarity", "mining.max_similarity"),
    ],
)
def test_an_unknown_section_gives_the_nearest_names(asked: str, near: str) -> None:
    with pytest.raises(ConfigError, match=rf"\b{re.escape(near)}\b"):
        list_settings(asked)
