"""Plugins that are there and work, and those that are broken: one error that names the package and
its entry point."""

import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pairwright.flows.pipeline.load_profile import load_profile
from pairwright.flows.pipeline.pipeline import Pipeline
from pairwright.flows.pipeline.stages import BY_NAME
from pairwright.schemas import plugins
from pairwright.schemas.config import BuildRecord
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.plugins import find_plugins, load_plugin
from pairwright.tasks.captioning.validators import VALIDATORS
from pairwright.tasks.export.formats import FORMATS, find_form
from pairwright.tasks.sources.readers import READERS, recognise_source
from pairwright.tasks.store.stage import Planned

EXAMPLE = Path(__file__).parent.parent / "example_plugin/pairwright_example.py"
VALIDATOR = (
    "from pairwright.tasks.captioning.validators import Validator\nMINE = Validator({}refuse=str)\n"
)
GOOD = VALIDATOR.format("name='mine', version=1, ")
STAGE = """
from dataclasses import dataclass
from pairwright.schemas.rows import PairRow, Row
from pairwright.schemas.section import Section
from pairwright.tasks.store.stage import Stage

class Config(Section):
    least: int = 0

@dataclass(frozen=True, slots=True, kw_only=True)
class MineRow(Row):
    value: float

def work(rows, config):
    yield from ()

MINE = Stage(
    name="mine", version=1, group="mining", reads={"pairs": PairRow},
    writes=MineRow, function=work, config=Config,
)
"""
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return what installs a package, as pip leaves it behind: a module, and metadata beside it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(plugins, "_FILES", {})
    modules: list[str] = []

    def install(
        group: str, code: str, *, name: str = "mine", package: str = "one", value: str = "MINE"
    ) -> None:
        info, module = tmp_path / f"{package}-1.0.dist-info", f"{package}_module"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        entry = f"[pairwright.{group}]\n{name} = {module}:{value}\n"
        (info / "entry_points.txt").write_text(entry)
        (tmp_path / f"{module}.py").write_text(code)
        modules.append(module)
        plugins._installed.cache_clear()

    yield install
    for module in modules:
        sys.modules.pop(module, None)
    plugins._installed.cache_clear()


def stages(*settings: str) -> dict[str, Planned]:
    return {each.stage.name: each for each in Pipeline(load_profile("scenes", settings)).plan()}


def test_what_is_installed_is_found_by_its_name(install: Install) -> None:
    install("validators", GOOD)
    assert list(VALIDATORS) == ["mine"]
    assert VALIDATORS["mine"].version == 1
    assert (VALIDATORS.origin("mine"), VALIDATORS.origin("other")) == ("one==1.0", "")
    assert load_profile("scenes", ["captions.validators=[mine]"]).captions.validators == ("mine",)


@pytest.mark.parametrize(
    ("code", "value"),
    [
        pytest.param("import no_such_module", "MINE", id="import fails"),
        pytest.param("1 / 0", "MINE", id="code fails"),
        pytest.param(GOOD, "OTHER", id="not in it"),
        pytest.param("MINE = 'no validator'", "MINE", id="another kind"),
        pytest.param(VALIDATOR.format("name='other', version=1, "), "MINE", id="another name"),
        pytest.param(VALIDATOR.format(""), "MINE", id="wrong fields"),
    ],
)
def test_a_broken_plugin_is_named(install: Install, code: str, value: str) -> None:
    install("validators", code, value=value)
    with pytest.raises(ConfigError, match=r"one==1\.0.*pairwright\.validators 'mine'"):
        VALIDATORS["mine"]


def test_what_nobody_names_is_not_loaded(install: Install) -> None:
    install("sources", "raise SystemExit")
    assert READERS["folder"].kind == "folder"
    assert recognise_source("scenes:") == "scenes:"
    assert "mine" in READERS
    load_profile("scenes")


@pytest.mark.parametrize(
    ("group", "name", "registry"),
    [("sources", "folder", READERS), ("formats", "trl", FORMATS), ("stages", "pairs", BY_NAME)],
    ids=["source", "format", "stage"],
)
def test_a_name_of_ours_is_refused(
    install: Install, group: str, name: str, registry: plugins.Registry[object]
) -> None:
    install(group, "MINE = 1", name=name)
    with pytest.raises(ConfigError, match=rf"one==1\.0.*pairwright\.{group} '{name}'"):
        list(registry)
    assert registry[name] is registry.data[name], "a build with ours goes on"


def test_two_plugins_of_one_name_are_refused(install: Install) -> None:
    install("formats", "MINE = 1")
    install("formats", "MINE = 1", package="two")
    with pytest.raises(ConfigError, match=r"(one|two)==1\.0.*(one|two)==1\.0"):
        find_form("mine")


def test_a_stage_runs_where_a_profile_names_it(install: Install) -> None:
    install("stages", STAGE)
    assert "mine" not in stages()
    default, other = stages("stages.mine="), stages("stages.mine.least=3")
    assert default["mine"].is_on
    names = list(default)
    assert names.index("mine") == names.index("pairs") + 1, "the last of its group"
    assert other["mine"].config.least == 3
    changed = [name for name in names if default[name].fingerprint != other[name].fingerprint]
    assert changed == ["mine"]


@pytest.mark.parametrize(
    "setting", ["stages.mine.lest=3", "stages.mine.least=x", "stages.other=", "stages.mine=[1]"]
)
def test_settings_of_a_stage_are_checked(install: Install, setting: str) -> None:
    install("stages", STAGE)
    with pytest.raises(ConfigError, match="stages"):
        load_profile("scenes", [setting])


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        pytest.param("config=Config", "config='mining'", id="settings of ours"),
        pytest.param("least: int = 0", "least: int", id="no default"),
        pytest.param('group="mining"', 'group="training"', id="no such group"),
        pytest.param('"pairs": ', '"preferences": ', id="made later"),
    ],
)
def test_a_stage_that_does_not_fit_is_refused(install: Install, good: str, bad: str) -> None:
    assert good in STAGE
    install("stages", STAGE.replace(good, bad))
    with pytest.raises(ConfigError, match="mine"):
        stages("stages.mine=")


@pytest.mark.usefixtures("install")
def test_a_file_adds_what_it_lists() -> None:
    load_plugin(EXAMPLE)
    assert list(find_plugins("sources")) == ["palette"]
    assert READERS.origin("palette") == str(EXAMPLE)
    brightness = stages("stages.brightness.min_brightness=0.5")["brightness"]
    assert brightness.is_on
    assert pickle.loads(pickle.dumps(brightness)) == brightness
    profile = load_profile("scenes", ["stages.brightness.min_brightness=0.5"])
    assert type(profile).model_validate_json(profile.model_dump_json()) == profile


@pytest.mark.usefixtures("install")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("wrong.py", "1 / 0", id="code fails"),
        pytest.param("json.py", "SOURCES = []", id="a module's name"),
        pytest.param("notes.txt", "", id="no Python"),
    ],
)
def test_a_file_that_will_not_do_is_named(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name):
        load_plugin(tmp_path / name)
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=name):
        load_plugin(tmp_path / name)


@pytest.mark.parametrize("origin", ["two==2.0", "/gone/mine.py"])
def test_a_dataset_whose_plugin_is_gone_says_which(install: Install, origin: str) -> None:
    request = {"items": [], "profile": {}, "limit": None, "until": ""}
    record = {**request, "plugins": {"validators.mine": origin}}
    with pytest.raises(ConfigError, match=origin):
        BuildRecord.model_validate(record)
    install("validators", GOOD)
    assert BuildRecord.model_validate(record), "it may be of another package now"
