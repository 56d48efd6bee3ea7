"""Tests of the list of settings: it has each field of the models, and says what the models hold."""

import re
import runpy
from pathlib import Path

import pytest
import yaml

from pairwright.flows.pipeline.list_settings import list_profiles, list_settings
from pairwright.flows.pipeline.load_profile import load_profile, profile_names
from pairwright.schemas.config import Profile
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.training import TrainConfig

NAMED = {"per_source": "scenes"}
"""Name by which a rule is listed: the profile's own source."""
DOCS = Path(__file__).parents[3] / "docs"


def leaves(schema, root, place=""):
    """Yield the names of the values that a JSON schema has places for, by another way than the
    list's own."""
    for name, field in schema["properties"].items():
        patterns = next(iter(field.get("patternProperties", {}).values()), {})
        described = field.get("additionalProperties", patterns)
        if "$ref" in described:  # several by name, of which the list has one at least
            field, name = described, f"{name}.{NAMED.get(name, 'chat')}"
        inner = [option for option in (field, *field.get("anyOf", [])) if "$ref" in option]
        model = root["$defs"][inner[0]["$ref"].rpartition("/")[2]] if inner else {}
        if "properties" in model:
            yield from leaves(model, root, f"{place}{name}.")
        else:
            yield f"{place}{name}"


@pytest.mark.parametrize(("kind", "command"), [(Profile, "build"), (TrainConfig, "train")])
def test_every_field_of_the_models_is_listed_once(kind, command) -> None:
    schema = kind.model_json_schema()
    fields = list(leaves(schema, schema))
    listed = [setting.name for setting in list_settings() if setting.command == command]
    assert sorted(listed) == sorted(name for name in fields if name in set(listed))
    for unlisted in set(fields) - set(listed):  # no setting: it cannot be set
        with pytest.raises(ConfigError):
            load_profile("scenes", [f"{unlisted}=1"])
    assert all(setting.meaning and setting.type for setting in list_settings())


def test_the_listed_values_can_be_set() -> None:
    listed = list_settings(profile="laptop")
    values = {setting.name: setting.value for setting in listed if setting.command == "build"}
    settings = [
        f"{name}={yaml.safe_dump(value, default_flow_style=True).strip()}"
        for name, value in values.items()
    ]
    assert len(settings) > 100
    for setting in settings:
        load_profile("laptop", [setting])


def test_the_list_says_what_the_models_hold_by_section_and_profile() -> None:
    assert [profile["name"] for profile in list_profiles()] == profile_names()
    assert all(profile["about"] for profile in list_profiles())
    assert {setting.name.partition(".")[0] for setting in list_settings("run")} == {"run"}
    assert {setting.command for setting in list_settings("train")} == {"train"}
    (similar,) = list_settings("mining.min_similarity", profile="scenes")
    assert (similar.type, similar.range) == ("number", "0 to 1")
    assert (similar.default, similar.value) == (0.78, 0.2)
    (objective,) = list_settings("train.objective")
    assert objective.default is None
    assert "adpo" in objective.type


@pytest.mark.parametrize("script", ["write_pages.py", "write_reference.py"])
def test_the_pages_of_the_documentation_are_what_the_source_gives(script) -> None:
    for name, write in runpy.run_path(str(DOCS / script))["PAGES"].items():
        page = (DOCS / "reference" / name).read_text(encoding="utf-8")
        assert page == write(), "write them again with: make docs"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("minning", "mining"),
        ("train.optimizer", "train.optimiser"),
        ("max_similarity", "mining.max_similarity"),
    ],
)
def test_an_unknown_section_gives_the_nearest_names(name, near) -> None:
    with pytest.raises(ConfigError, match=rf"\b{re.escape(near)}\b"):
        list_settings(name)
