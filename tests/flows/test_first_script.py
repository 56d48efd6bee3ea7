"""The script that a newcomer begins with, run on a small dataset."""

import runpy
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import pairwright as pw

SCRIPT = Path(__file__).parents[2] / "docs/first_script.py"


def test_it_opens_shows_exports_and_trains(rendered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(rendered, tmp_path / "demo")
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(SCRIPT))
    lines = SCRIPT.read_text().partition("import pairwright as pw")[2].strip().splitlines()
    assert len(lines) <= 10
    assert "data:image/jpeg" in names["pairs"]._repr_html_()
    assert names["card"]._repr_html_().startswith("<iframe")
    assert "data:image/png" in (tmp_path / "pair.html").read_text()
    rows = sum(pq.read_metadata(path).num_rows for path in (tmp_path / "demo-trl").rglob("*.parquet"))
    assert rows == names["tally"].rows > 0
    (run,) = pw.open("demo").runs()
    assert run.finished
    assert run.objective == "sft"
