"""Plugins that are there and work, and those that are broken: one error that names the package and
its entry point."""

import pickle
import sys
from pathlib import Path

import pytest

from pairwright.flows.pipeline.load_profile import load_profile
from pairwright.flows.pipeline.pipeline import Pipeline
from pairwright.schemas import plugins
from pairwright.schemas.config import BuildRecord
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.plugins import find_plugins, load_plugin
from pairwright.tasks.captioning.validators import VALIDATORS
from pairwright.tasks.export.formats import FORMATS, find_form
from pairwright.tasks.sources.readers import READERS, recognise_source

EXAMPLE = Path(__file__).parent.parent / "example_plugin/pairwright_example.py"
VALIDATOR = (
    "from pairwright.tasks.captioning.validators import Validator\nMINE = Validator({}refuse=str)\n"
)
GOOD = VALIDATOR.format("name='mine', version=1, ")
STAGE = """
from dataclasses import dataclass, replace
from pairwright.schemas.rows import ImageRow, PairRow, Row
from pairwright.schemas.section import Section
from pairwright.tasks.store.stage import Stage

class Config(Section):
    {setting}

@dataclass(frozen=True, slots=True, kw_only=True)
class MineRow(Row):
    value: {type}

def work(rows, config):
    yield from ()

MINE = Stage(
    name="mine", version=1, group="{group}", reads={{"{table}": PairRow}},
    writes=MineRow, function=work, config={config},
)
"""
STAGE_WORDS = {
    "setting": "least: int = 0",
    "type": "float",
    "group": "mining",
    "table": "pairs",
    "config": "Config",
}


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return what installs a package, as pip leaves it behind: a module, and metadata beside it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(plugins, "_FILES", {})
    modules = []

    def install(
        group: str, code: str, *, name: str = "mine", package: str = "one", value: str = "MINE"
    ) -> None:
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(
            f"[pairwright.{group}]\n{name} = {package}_module:{value}\n"
        )
        (tmp_path / f"{package}_module.py").write_text(code)
        modules.append(f"{package}_module")
        plugins._installed.cache_clear()

    yield install
    for module in modules:
        sys.modules.pop(module, None)
    plugins._installed.cache_clear()


def test_what_is_installed_is_found_by_its_name(install):
    install("validators", GOOD)
    assert list(VALIDATORS) == ["mine"]
    assert VALIDATORS["mine"].version == 1
    assert (VALIDATORS.origin("mine"), VALIDATORS.origin("other")) == ("one==1.0", "")
    assert load_profile("scenes", ["captions.validators=[mine]"]).captions.validators == ("mine",)


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("import no_such_module", "MINE"),
        ("1 / 0", "MINE"),
        (GOOD, "OTHER"),
        ("MINE = 'no validator'", "MINE"),
        (VALIDATOR.format("name='other', version=1, "), "MINE"),
        (VALIDATOR.format(""), "MINE"),
    ],
    ids=["import fails", "code fails", "not in it", "another kind", "another name", "wrong fields"],
)
def test_a_broken_plugin_is_named(install, code, value):
    install("validators", code, value=value)
    with pytest.raises(ConfigError, match=r"one==1\.0.*pairwright\.validators 'mine'"):
        VALIDATORS["mine"]


def test_what_nobody_names_is_not_loaded(install):
    install("sources", "raise SystemExit")
    assert READERS["folder"].kind == "folder"
    assert recognise_source("scenes:") == "scenes:"
    assert "mine" in READERS
    load_profile("scenes")


@pytest.mark.parametrize(
    ("group", "name"), [("sources", "folder"), ("formats", "trl"), ("stages", "pairs")]
)
def test_a_name_of_ours_is_refused(install, group, name):
    from pairwright.flows.pipeline.stages import BY_NAME

    install(group, "MINE = 1", name=name)
    registry = {"sources": READERS, "formats": FORMATS, "stages": BY_NAME}[group]
    with pytest.raises(ConfigError, match=rf"one==1\.0.*pairwright\.{group} '{name}'"):
        list(registry)
    assert registry[name] is registry.data[name], "a build with ours goes on"


def test_two_plugins_of_one_name_are_refused(install):
    install("formats", "MINE = 1")
    install("formats", "MINE = 1", package="two")
    with pytest.raises(ConfigError, match=r"(one|two)==1\.0.*(one|two)==1\.0"):
        find_form("mine")


def test_a_stage_runs_where_a_profile_names_it(install):
    install("stages", STAGE.format(**STAGE_WORDS))
    assert "mine" not in {one.stage.name for one in Pipeline(load_profile("scenes")).plan()}
    planned = {
        one.stage.name: one for one in Pipeline(load_profile("scenes", ["stages.mine="])).plan()
    }
    assert planned["mine"].is_on
    assert list(planned).index("mine") == list(planned).index("pairs") + 1, "the last of its group"
    other = {
        one.stage.name: one
        for one in Pipeline(load_profile("scenes", ["stages.mine.least=3"])).plan()
    }
    assert other["mine"].config.least == 3
    changed = [name for name in planned if planned[name].fingerprint != other[name].fingerprint]
    assert changed == ["mine"]


@pytest.mark.parametrize(
    "setting", ["stages.mine.lest=3", "stages.mine.least=x", "stages.other=", "stages.mine=[1]"]
)
def test_settings_of_a_stage_are_checked(install, setting):
    install("stages", STAGE.format(**STAGE_WORDS))
    with pytest.raises(ConfigError, match="stages"):
        load_profile("scenes", [setting])


@pytest.mark.parametrize(
    "words",
    [
        {"config": "'mining'"},
        {"setting": "least: int"},
        {"group": "training"},
        {"table": "preferences"},
    ],
    ids=["settings of ours", "no default", "no such group", "made later"],
)
def test_a_stage_that_does_not_fit_is_refused(install, words):
    install("stages", STAGE.format(**STAGE_WORDS | words))
    with pytest.raises(ConfigError, match="mine"):
        Pipeline(load_profile("scenes", ["stages.mine="])).plan()


def test_a_file_adds_what_it_lists(install):
    load_plugin(EXAMPLE)
    assert list(find_plugins("sources")) == ["palette"]
    assert READERS.origin("palette") == str(EXAMPLE)
    profile = load_profile("scenes", ["stages.brightness.min_brightness=0.5"])
    (planned,) = [one for one in Pipeline(profile).plan() if one.stage.name == "brightness"]
    assert planned.is_on
    assert pickle.loads(pickle.dumps(planned)) == planned
    assert type(profile).model_validate_json(profile.model_dump_json()) == profile


@pytest.mark.parametrize("name", ["none.py", "wrong.py", "json.py", "notes.txt"])
def test_a_file_that_will_not_do_is_named(install, tmp_path, name):
    for file, text in {"wrong.py": "1 / 0", "json.py": "SOURCES = []", "notes.txt": ""}.items():
        (tmp_path / file).write_text(text)
    with pytest.raises(ConfigError, match=name):
        load_plugin(tmp_path / name)


@pytest.mark.parametrize("origin", ["two==2.0", "/gone/mine.py"])
def test_a_dataset_whose_plugin_is_gone_says_which(install, origin):
    record = {
        "plugins": {"validators.mine": origin},
        "items": [],
        "profile": {},
        "limit": None,
        "until": "",
    }
    with pytest.raises(ConfigError, match=origin):
        BuildRecord.model_validate(record)
    install("validators", GOOD)
    assert BuildRecord.model_validate(record), "it may be of another package now"
