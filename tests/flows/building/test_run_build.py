"""Builds in this process: what is deleted beside them."""

from pathlib import Path

import pytest

from pairwright.flows.building import run_build
from pairwright.flows.versions.collect_garbage import collect_garbage
from pairwright.schemas.config import BuildRecord
from pairwright.schemas.errors import StoreError
from pairwright.tasks.store.files import Folder
from tests.fixtures.builds import build_here
from tests.fixtures.pictures import write_pictures


def test_nothing_is_cleared_up_from_the_listing_of_the_source_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_pictures(tmp_path / "in", "ab")
    write_record, refusals = run_build.write_record, list[str]()

    def clear_up(folder: Folder, record: BuildRecord) -> None:
        write_record(folder, record)
        with pytest.raises(StoreError, match="is running") as error:
            collect_garbage(folder, keep=None, dry_run=False)
        refusals.append(str(error.value))

    monkeypatch.setattr(run_build, "write_record", clear_up)
    out = tmp_path / "out"
    assert build_here(out, source, until="sources", settings=["run.workers=1"]).is_complete
    assert refusals
    collect_garbage(Folder(str(out)), keep=None, dry_run=False)
