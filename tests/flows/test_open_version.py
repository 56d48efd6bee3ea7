"""Reading a dataset as one of its versions, whatever has become of it since."""

import json
import shutil
from pathlib import Path

import pytest

from pairwright.flows.open_version import opened
from pairwright.flows.read_rows import read_rows
from pairwright.flows.report_dataset import report_dataset
from pairwright.flows.run_build import look_at
from pairwright.schemas.errors import ConfigError, StoreError
from pairwright.tasks.store.files import Folder
from tests.flows.conftest import SMALL, WIDE, build


@pytest.fixture(scope="module")
def two(rendered: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of two versions: the second has images and pairs of two worlds, the first of three."""
    out = tmp_path_factory.mktemp("versions") / "demo"
    shutil.copytree(rendered, out)
    return build(out, None, until="mining", settings=[*SMALL, *WIDE, "scenes.worlds=2"])


def _edit(out: Path, number: int, **content: object) -> None:
    path = out / f"snapshots/{number:06d}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **content}))


def test_the_newest_is_opened_by_default_and_each_by_its_number(two: Path, rendered: Path) -> None:
    folder = Folder(str(two))
    with opened(folder) as (build_of_two, stages):
        assert build_of_two.pinned
        assert build_of_two.pinned.number == 2
        assert {planned.stage.name: counts.rows for planned, counts in stages}["images"] == 6
    assert len(list(read_rows(str(two), "images"))) == 6
    assert len(list(read_rows(str(two), "images", version=1))) == 9
    before = list(read_rows(str(rendered), "preferences"))
    assert before
    assert list(read_rows(str(two), "preferences", version=1)) == before
    with opened(folder, 1) as (_, stages):
        assert [counts for _, counts in stages] == look_at(Folder(str(rendered)))


def test_a_version_shows_itself(two: Path) -> None:
    report_dataset(Folder(str(two)), pairs=2, version=1)
    assert "ersion 1" in (two / "report/index.html").read_text()


def test_what_a_build_that_published_nothing_made_is_not_seen(two: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(two, out)
    (out / "snapshots/000002.json").unlink()
    assert len(list(read_rows(str(out), "images"))) == 9
    (out / "snapshots/000001.json").unlink()
    assert len(list(read_rows(str(out), "images"))) == 6, "without any version, as it is now"


def test_a_version_that_is_not_there_is_wrong_usage(two: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no version 7\. There are: 1, 2"):
        next(read_rows(str(two), "images", version=7))
    with pytest.raises(ConfigError, match="holds no dataset"):
        next(read_rows(str(tmp_path), "images", version=1))


def test_a_version_whose_parts_are_gone_or_changed_is_refused(two: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(two, out)
    path = next(out.glob("tables/preferences/*/part-*"))
    path.unlink()
    with pytest.raises(StoreError, match=rf"{path.name}.* version 1 names it, and it is gone"):
        next(read_rows(str(out), "images", version=1))
    assert len(list(read_rows(str(out), "images"))) == 6
    stages = json.loads((out / "snapshots/000002.json").read_text())["stages"]
    stages["pairs"]["parts"] = {name: count + 1 for name, count in stages["pairs"]["parts"].items()}
    _edit(out, 2, stages=stages)
    with pytest.raises(StoreError, match=r"version 2 states .* rows of pairs, and its parts hold"):
        next(read_rows(str(out), "images"))


def test_a_version_of_another_release_is_refused_clearly(two: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(two, out)
    content = json.loads((out / "snapshots/000001.json").read_text())
    content["lineage"]["profile"]["mining"]["flavour"] = 3
    _edit(out, 1, lineage=content["lineage"])
    with pytest.raises(StoreError, match=r"version 1 was made by another release.*profile\.mining\.flavour"):
        next(read_rows(str(out), "images", version=1))
    del content["stages"]["splits"]
    del content["lineage"]["profile"]["mining"]["flavour"]
    _edit(out, 1, stages=content["stages"], lineage=content["lineage"])
    with pytest.raises(StoreError, match=r"version 1 was made by another release.*it has the tables images"):
        next(read_rows(str(out), "images", version=1))
