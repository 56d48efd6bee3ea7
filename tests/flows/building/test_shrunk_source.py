"""A source that lost images is held back, unless it was asked for."""

from pathlib import Path

import pairwright as pw
from tests.fixtures.builds import build_here
from tests.fixtures.layouts import put
from tests.fixtures.pictures import picture

SETTINGS = ["run.workers=1"]


def test_half_a_folder_gone_is_held_back(tmp_path: Path) -> None:
    source = tmp_path / "source"
    out = tmp_path / "out"
    for number in range(4):
        put(source, f"{number}.png", picture(number))
    build_here(out, source, until="images", settings=SETTINGS)
    for number in range(2):
        (source / f"{number}.png").unlink()
    report = pw.open(out).resume()
    assert [gate.gate for gate in report.verdict.failed] == ["min_kept"]
    assert len(pw.open(out)["images"]) == 4, "the version before stays current"
    pw.open(out).publish()
    assert len(pw.open(out)["images"]) == 2


def test_a_takedown_and_a_limit_are_no_loss(tmp_path: Path) -> None:
    source = tmp_path / "source"
    out = tmp_path / "out"
    for number in range(4):
        put(source, f"{number}.png", picture(number))
    build_here(out, source, until="images", settings=SETTINGS)
    pw.open(out).remove(names=["0.png", "1.png"])
    assert pw.open(out).resume().is_complete
    report = pw.Dataset.build(source, out=out, until="images", settings=SETTINGS, limit=3).outcome
    assert report
    assert report.is_complete
