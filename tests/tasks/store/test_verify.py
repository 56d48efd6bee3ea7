"""Whatever byte of a dataset changes, and whatever file of it is deleted, is found and named."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from pairwright.schemas.errors import StoreError
from pairwright.tasks.store.files import Folder, read_sealed, seal
from pairwright.tasks.store.gates import Verdict, write_verdict
from pairwright.tasks.store.open_tables import ITEMS, write_record
from pairwright.tasks.store.snapshot import read_snapshot, snapshot_numbers, write_deleted
from pairwright.tasks.store.takedowns import write_takedown
from pairwright.tasks.store.verify import find_faults
from tests.tasks.store.faults import flipped
from tests.tasks.store.toy import build_toy, read_tree, record_of


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of two versions, a removal and a verdict."""
    root = tmp_path_factory.mktemp("whole")
    folder = Folder(str(root))
    for words in (["a", "bad"], ["a", "bad", "c"]):
        build_toy(root, words)
    write_record(folder, record_of())
    write_takedown(folder, ["0" * 32], reason="asked")
    write_verdict(folder, Verdict(began="", ended="", complete=True, version=2, gates=()))
    return root


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Folder:
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    return Folder(str(tmp_path))


def faults_of(folder: Folder) -> list[str]:
    tables = [
        f"tables/{name}/{mark}"
        for name in folder.folders("tables")
        for mark in folder.folders(f"tables/{name}")
    ]
    return list(find_faults(folder, [ITEMS, *tables]))


def test_every_file_that_is_changed_or_deleted_is_named(folder: Folder, tmp_path: Path) -> None:
    assert faults_of(folder) == []
    paths = [path for path in tmp_path.rglob("*.*") if path.suffix in (".json", ".parquet")]
    names = {path.name for path in paths}
    assert names >= {"build.json", "gates.json", "000001.json", "000002.json"}
    assert len(paths) > 10
    for path in paths:
        sound = path.read_bytes()
        for place in range(0, len(sound), max(1, len(sound) // 7)):
            path.write_bytes(flipped(sound, place, 1 << place % 8))
            (fault,) = faults_of(folder)
            assert str(path) in fault
        path.unlink()
        missing = "\n".join(faults_of(folder))
        # The list of removals says not how long it is.
        assert (str(path) in missing) == (path.parent.name != "takedowns")
        assert missing.count("\n") == 0
        path.write_bytes(sound)


def test_each_flipped_bit_of_a_sealed_file_is_found(folder: Folder) -> None:
    content = {"words": ["é", 'a "digest"'], "share": 1e-5, "digest of": 3}
    sound = seal(content)
    folder.write("one.json", sound)
    assert read_sealed(folder, "one.json", mend="") == content
    for place in range(8 * len(sound)):
        folder.write("one.json", flipped(sound, place // 8, 1 << place % 8))
        with pytest.raises(StoreError, match=r"one\.json: .* Write it again"):
            read_sealed(folder, "one.json", mend="Write it again")


def test_foreign_files_and_versions_deleted_on_purpose_are_no_fault(folder: Folder) -> None:
    for name in ("notes.json", "12.json", "0000012.json"):
        folder.write(f"snapshots/{name}", b"{}")
    assert snapshot_numbers(folder) == [1, 2]
    assert faults_of(folder) == []
    write_deleted(folder, [1])
    folder.delete("snapshots/000001.json")
    assert faults_of(folder) == []
    folder.delete("snapshots/000002.json")
    (fault,) = faults_of(folder)
    assert "000002.json" in fault
    assert "pairwright resume" in fault


def test_a_part_that_was_copied_over_another_is_named_and_made_again(tmp_path: Path) -> None:
    build_toy(tmp_path, ["a", "b"], rows_per_shard=1)
    folder, before = Folder(str(tmp_path)), read_tree(tmp_path)
    write_record(folder, record_of())
    first, second = sorted(tmp_path.glob("tables/images/*/part-*.parquet"))
    second.write_bytes(first.read_bytes())
    (fault,) = (fault for fault in faults_of(folder) if "part-" in fault)
    assert str(second) in fault
    assert first.name in fault
    with pytest.raises(StoreError, match=second.name):
        build_toy(tmp_path, ["a", "b"], rows_per_shard=1)
    second.unlink()
    build_toy(tmp_path, ["a", "b"], rows_per_shard=1)
    assert read_tree(tmp_path) == before


def images_of(fingerprint: str, part: str) -> dict[str, Any]:
    return {"images": {"fingerprint": fingerprint, "parts": {part: 1}, "refused": []}}


@pytest.mark.parametrize(
    "change",
    [
        {"items": ["/etc/passwd"]},
        {"stages": images_of("../..", "part-1.parquet")},
        {"stages": images_of("f1", "../part-1.parquet")},
    ],
)
def test_a_version_that_names_files_elsewhere_is_refused(
    folder: Folder, change: dict[str, Any]
) -> None:
    folder.write("snapshots/000002.json", seal(read_snapshot(folder, 2).content | change))
    with pytest.raises(StoreError, match=r"000002\.json: "):
        read_snapshot(folder, 2)
    (fault,) = faults_of(folder)
    assert "000002.json" in fault
