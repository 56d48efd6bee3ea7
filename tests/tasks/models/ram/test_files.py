"""Where RAM's files are looked for, and lists of tags that are broken."""

from pathlib import Path

import pytest

from pairwright.schemas.errors import ModelError
from pairwright.schemas.removing import RamConfig
from pairwright.tasks.models.ram.files import FIELD, RAM, RAM_PLUS, RamFiles, find_ram, pin_ram, read_tags
from tests.fixtures.ram_checkpoints import TAGS, write_ram


def files(folder: Path, tags: str, thresholds: str | None) -> RamFiles:
    (folder / "tags.txt").write_text(tags, encoding="utf-8")
    if thresholds is not None:
        (folder / "thresholds.txt").write_text(thresholds)
    return RamFiles(
        checkpoint=folder / "none.pth",
        tags=folder / "tags.txt",
        thresholds=folder / "thresholds.txt" if thresholds is not None else None,
    )


def test_names_come_with_their_thresholds(tmp_path: Path) -> None:
    found = read_tags(files(tmp_path, "dog\nteddy bear \ncafé\n", "0.5\n0.65\n1.0\n"))
    assert found.names == ("dog", "teddy bear", "café")
    assert found.thresholds == (0.5, 0.65, 1.0)


def test_without_thresholds_all_have_the_public_code_s(tmp_path: Path) -> None:
    assert read_tags(files(tmp_path, "dog\ncat\n", None)).thresholds == (0.68, 0.68)


@pytest.mark.parametrize(
    ("tags", "thresholds", "message"),
    [
        ("", "0.5", f"{FIELD}.tags: .*tags.txt"),
        ("dog\n\ncat", "0.5\n0.5\n0.5", "line 2"),
        ("dog\ncat", "0.5\n0.5\n0.5", "thresholds.txt has 3 .*tags.txt .* 2 tags"),
        ("dog", "high", "line 1 .*'high'"),
        ("dog\ncat", "0.5\n1.5", "line 2 .*'1.5'"),
        ("dog", "nan", "line 1 .*'nan'"),
        ("x" * (1 << 21), "0.5", "megabyte"),
    ],
)
def test_broken_lists_are_refused(tmp_path: Path, tags: str, thresholds: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read_tags(files(tmp_path, tags, thresholds))


def test_a_list_that_is_no_text_is_refused(tmp_path: Path) -> None:
    listed = files(tmp_path, "dog", "0.5")
    listed.tags.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ModelError, match=r"tags\.txt"):
        read_tags(listed)


def test_pinning_names_the_files_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = write_ram(tmp_path / "a").config
    monkeypatch.chdir(tmp_path)
    near = RamConfig(checkpoint="a/ram.pth", tags="a/tags.txt", thresholds="a/thresholds.txt")
    pinned = pin_ram(near, plus=False, download=False)
    assert pinned == made.model_copy(update={"revision": pinned.revision})
    assert pinned.revision.startswith("xxh3:")
    assert find_ram(pinned, plus=False, download=False).all == [
        Path(p) for p in (made.checkpoint, made.tags, made.thresholds)
    ]


@pytest.mark.parametrize("name", ["checkpoint", "tags", "thresholds"])
def test_a_file_that_changed_is_refused(tmp_path: Path, name: str) -> None:
    pinned = pin_ram(write_ram(tmp_path).config, plus=False, download=False)
    with Path(getattr(pinned, name)).open("ab") as stream:
        stream.write(b"\n")
    with pytest.raises(ModelError, match=r"tagging\.ram\.revision"):
        pin_ram(pinned, plus=False, download=False)


def test_published_files_are_looked_for_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIRWRIGHT_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ModelError, match=r"ram_tag_list_threshold\.txt .*tagging\.download=true"):
        find_ram(RamConfig(), plus=False, download=False)
    lists = {"tags": str(tmp_path / "tags.txt")}
    (tmp_path / "tags.txt").write_text("\n".join(TAGS))
    for plus, file in ((False, RAM), (True, RAM_PLUS)):
        with pytest.raises(ModelError, match=f"{file.name} .*{file.url}"):
            find_ram(RamConfig(**lists), plus=plus, download=False)


def test_a_cached_file_that_is_not_the_published_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIRWRIGHT_CACHE", str(tmp_path))
    made = write_ram(tmp_path / "made").config
    (tmp_path / "weights").mkdir()
    Path(made.checkpoint).rename(tmp_path / "weights" / RAM.name)
    with pytest.raises(ModelError, match=r"SHA-256 .*15c729c7"):
        find_ram(made.model_copy(update={"checkpoint": ""}), plus=False, download=False)


@pytest.mark.parametrize("name", ["checkpoint", "tags", "thresholds"])
def test_a_missing_local_file_is_named(tmp_path: Path, name: str) -> None:
    made = write_ram(tmp_path).config
    Path(getattr(made, name)).unlink()
    with pytest.raises(ModelError, match=rf"tagging\.ram\.{name}"):
        pin_ram(made, plus=False, download=False)
