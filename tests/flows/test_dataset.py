"""The dataset as people open it: one way, for each of its versions."""

import json
import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import pairwright as pw
from pairwright.schemas.errors import StoreError
from pairwright.tasks.store.files import seal
from tests.flows.conftest import SMALL, WIDE, build


@pytest.fixture(scope="module")
def two(rendered: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of two versions: the second has images and pairs of two worlds, the first of
    three."""
    out = tmp_path_factory.mktemp("versions") / "demo"
    shutil.copytree(rendered, out)
    return build(out, None, until="mining", settings=[*SMALL, *WIDE, "scenes.worlds=2"])


def _edit(out: Path, number: int, **content: object) -> None:
    path = out / f"snapshots/{number:06d}.json"
    path.write_bytes(seal({**json.loads(path.read_text()), **content}))


def test_the_newest_version_is_opened_and_each_by_its_number(two: Path, rendered: Path) -> None:
    newest, first = pw.open(two), pw.open(str(two), version=1)
    assert (newest.number, first.number) == (2, 1)
    assert (len(newest["images"]), len(first["images"])) == (6, 9)
    assert "preferences" in first
    assert "preferences" not in newest
    assert list(newest) == newest.tables
    assert list(first["preferences"]) == list(pw.open(rendered)["preferences"])
    assert newest.profile.scenes.worlds == 2
    with pytest.raises(pw.ConfigError, match=r"version 3\b.* 1, 2"):
        pw.open(two, version=3)
    with pytest.raises(pw.ConfigError, match="pairwright build"):
        pw.open(two.parent, version=1)
    with pytest.raises(pw.ConfigError):
        pw.open(two.parent)


def test_a_dataset_says_how_it_stands(two: Path) -> None:
    dataset = pw.open(two)
    status = dataset.status(verify=True)
    assert (status.version, status.unfinished, list(status.damaged)) == (2, 0, [])
    for shown in (
        dataset._repr_html_(),
        status._repr_html_(),
        pw.open(two, version=1)._repr_html_(),
    ):
        assert "<td>pairs</td>" in shown


def test_what_changes_it_is_seen_at_once(two: Path, tmp_path: Path) -> None:
    out = tmp_path / "demo"
    shutil.copytree(two, out)
    dataset = pw.open(out)
    image = dataset["images"][0]
    assert dataset.remove([image.key], reason="asked by mail").keys == [image.key]
    assert image.key not in {row.key for row in dataset["images"]}
    assert dataset.resume().is_complete
    assert dataset.number == 3
    assert image.key not in {row.key for row in dataset["images"]}
    dataset.gc(keep=1)
    assert [one.version for one in dataset.versions()] == [4], "the one with the erased parts"


def test_building_opens_what_was_built(
    mined: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = {"run.workers": 1, "mining.min_similarity": 0.7}
    dataset = pw.Dataset.build(
        mined.parent / "in", out=tmp_path / "out", settings=settings, limit=8, until="mining"
    )
    assert dataset.outcome
    assert dataset.outcome.is_complete
    assert dataset.number == 1
    assert len(dataset["images"]) <= 8
    assert dataset.profile.mining.min_similarity == 0.7
    assert (tmp_path / "out/build.json").exists()
    with pytest.raises(pw.ConfigError):
        pw.build(mined.parent / "in", out=tmp_path / "out", settings=["mining.no_such=1"])


def test_a_pipeline_does_what_a_dataset_owes_of_it(two: Path, tmp_path: Path) -> None:
    dataset = pw.open(shutil.copytree(two, tmp_path / "demo"))
    pipeline = pw.Pipeline(dataset.profile, until="differences")
    assert pipeline.tables[-1] == "differences"
    assert (
        pipeline.tables[: len(dataset.tables)]
        == list(pw.Pipeline("laptop").tables)[: len(dataset.tables)]
    )
    report = pipeline.run(dataset)
    assert (report.is_complete, report.failures) == (True, [])
    assert "differences" not in pw.open(two)
    assert len(dataset["differences"]) > 0
    with pytest.raises(pw.ConfigError):
        pw.Pipeline("scenes", until="nowhere")


def test_a_version_whose_parts_are_gone_or_changed_is_refused(two: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(two, out)
    path = next(out.glob("tables/preferences/*/part-*"))
    path.unlink()
    with pytest.raises(StoreError, match=rf"{path.name}.* version 1"):
        next(pw.open(out, version=1)["images"].rows())
    assert len(list(pw.open(out)["images"].rows())) == 6
    stages = json.loads((out / "snapshots/000002.json").read_text())["stages"]
    stages["pairs"]["parts"] = {name: count + 1 for name, count in stages["pairs"]["parts"].items()}
    _edit(out, 2, stages=stages)
    with pytest.raises(StoreError, match=r"version 2 .*\bpairs\b"):
        next(pw.open(out)["pairs"].rows())


def test_a_version_of_another_release_is_refused_clearly(two: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(two, out)
    content = json.loads((out / "snapshots/000001.json").read_text())
    content["lineage"]["profile"]["mining"]["flavour"] = 3
    _edit(out, 1, lineage=content["lineage"])
    with pytest.raises(StoreError, match=r"version 1 .*profile\.mining\.flavour"):
        next(pw.open(out, version=1)["images"].rows())
    del content["stages"]["splits"]
    del content["lineage"]["profile"]["mining"]["flavour"]
    _edit(out, 1, stages=content["stages"], lineage=content["lineage"])
    with pytest.raises(StoreError, match=r"version 1 .*\bno table splits\b"):
        next(pw.open(out, version=1)["images"].rows())


SCRIPT = Path(__file__).parents[2] / "docs/first_script.py"
README = (Path(__file__).parents[2] / "README.md").read_text()


def test_it_opens_shows_exports_and_trains(
    rendered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(rendered, tmp_path / "demo")
    monkeypatch.chdir(tmp_path)
    pw.open("demo").train("sft", settings={"optimiser.max_steps": 1})  # as `make train` does
    names = runpy.run_path(str(SCRIPT))
    lines = SCRIPT.read_text().partition("import pairwright as pw")[2].strip().splitlines()
    assert len(lines) <= 10
    assert "data:image/jpeg" in names["pairs"]._repr_html_()
    assert names["card"]._repr_html_().startswith("<iframe")
    assert "data:image/png" in (tmp_path / "pair.html").read_text()
    rows = sum(
        pq.read_metadata(path).num_rows for path in (tmp_path / "demo-trl").rglob("*.parquet")
    )
    assert rows == names["tally"].rows > 0
    runs = {run.name: run for run in pw.open("demo").runs()}
    assert set(runs) == {"sft", "one-epoch"}
    assert runs["one-epoch"].finished
    assert runs["one-epoch"].objective == "sft"


def test_code_of_the_readme_runs_after_its_commands(
    rendered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(rendered, tmp_path / "demo")
    monkeypatch.chdir(tmp_path)
    pw.open("demo").train("sft", settings={"optimiser.max_steps": 1})
    (code,) = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    assert Path(names["run"].folder).name == "one-epoch"
    assert (tmp_path / "pair.html").exists()
