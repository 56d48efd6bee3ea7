"""What holds for every data set of images with annotations: order, keys, limits, hostile paths, a
whole build."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pairwright.flows.pipeline.stages import TABLES
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, Failed, ImageRow, PairRow
from pairwright.tasks.sources.readers import READERS
from tests.fixtures import layouts
from tests.fixtures.layouts import (
    cut,
    list_all,
    put,
    put_lines,
    read_all,
    source_of,
    write_omnidiff,
)
from tests.fixtures.tables import build


@dataclass(frozen=True)
class Sample:
    """What a tiny data set holds, counted by hand."""

    kind: str
    write: Callable[[Path], None]
    names: list[str]
    """Items, in order."""
    images: int
    """Distinct images that are read."""
    file: str
    """One image that only ``names[position]`` shows."""
    position: int
    annotations: str


CHANGES = [f"00000{n}.png{end}" for n in (4, 0, 1, 3) for end in ("", "_n")]
NARRATIVES = [f"mscoco_train2017/{n}" for n in (285, 139)]
NARRATIVES += [f"open_images_train/{name}" for name in ("fffabc0000000001", "00a1b2c3d4e5f607")]
NARRATED = "coco_train_localized_narratives-00001-of-00002.jsonl"
EDITS = ["Zhopped_1", "Zhopped_2", "Zhopped_3", "reddit_4"]
NUMBERS = ["000010.png", "000000.png", "000002.png", "000047.png"]
SPOTS = ["12998", "7", "12", "40", "41"]
SPOT = "resized_images/7_2.png"
CLEVR = "sc_images/CLEVR_semantic_000001.png"
COCO = "images/train2017/000000000139.jpg"
SAMPLES = [
    # 4 before, 4 after, 4 distractors of which one is its own before
    Sample(
        "clevr-change", layouts.write_clevr_change, CHANGES, 11, CLEVR, 4, "change_captions.json"
    ),
    Sample("clevr-dc", layouts.write_clevr_dc, NUMBERS, 8, "aft/10.png", 0, "captions.json"),
    Sample(
        "spot-the-diff", layouts.write_spot_the_diff, SPOTS, 10, SPOT, 1, "annotations/train.json"
    ),
    Sample(
        "image-editing-request",
        layouts.write_image_editing_request,
        EDITS,
        7,
        "images/d_b.jpg",
        3,
        "train.json",
    ),
    Sample(
        "localized-narratives", layouts.write_localized_narratives, NARRATIVES, 4, COCO, 1, NARRATED
    ),
    Sample(
        "omnidiff", write_omnidiff, ["2", "same", "0", "1"], 6, "real/1_b.jpg", 3, "train.jsonl"
    ),
]
PAIRS = ("given_pairs", "pairs")
every_kind = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.kind)


@every_kind
def test_order_and_keys_are_the_same_each_time_and_elsewhere(
    sample: Sample, tmp_path: Path
) -> None:
    sample.write(tmp_path / "one")
    first = list_all(source_of(sample.kind, tmp_path / "one"))
    assert [item.name for item in first] == sample.names
    assert len({item.key for item in first}) == len(first)
    assert all(item.locator.isascii() for item in first)
    (tmp_path / "one").rename(tmp_path / "two")
    assert list_all(source_of(sample.kind, tmp_path / "two")) == first
    for limit in (0, 1, 3):
        assert list_all(source_of(sample.kind, tmp_path / "two"), limit) == first[:limit]


@every_kind
def test_every_item_gives_its_images_and_its_pair(sample: Sample, tmp_path: Path) -> None:
    sample.write(tmp_path)
    found = read_all(source_of(sample.kind, tmp_path))
    rows = [row for rows in found.values() for row in rows]
    assert not [row for row in rows if isinstance(row, Dropped | Failed)]
    images = {row.key for row in rows if isinstance(row, ImageRow)}
    assert len(images) == sample.images
    assert {row.source for row in rows if isinstance(row, ImageRow)} == {sample.kind}
    pairs = [row for row in rows if isinstance(row, PairRow)]
    assert len(pairs) == (0 if sample.kind == "localized-narratives" else len(sample.names))
    assert {key for pair in pairs for key in (pair.first, pair.second)} == (
        images if pairs else set()
    )


@every_kind
def test_a_changed_image_changes_the_key_of_its_item_alone(sample: Sample, tmp_path: Path) -> None:
    sample.write(tmp_path)
    config = source_of(sample.kind, tmp_path)
    before = list_all(config)
    put(tmp_path, sample.file, cut(99))
    os.utime(tmp_path / sample.file, ns=(5, 5))
    changed = sample.names[sample.position]
    (dropped,) = [
        row for row in READERS[sample.kind].read_items(before, config) if isinstance(row, Dropped)
    ]
    assert (dropped.source_key, dropped.reason) == (
        before[sample.position].key,
        "changed since it was listed",
    )
    after = list_all(config)
    assert [old.name for old, new in zip(before, after, strict=True) if old.key != new.key] == [
        changed
    ]
    (tmp_path / sample.file).unlink()
    gone = list_all(config)[sample.position]
    assert gone.key not in (before[sample.position].key, after[sample.position].key)
    (row,) = READERS[sample.kind].read_items([gone], config)
    assert isinstance(row, Dropped)
    assert (row.reason, row.source_key) == ("missing file", gone.key)


@every_kind
def test_images_may_be_elsewhere(sample: Sample, tmp_path: Path) -> None:
    sample.write(tmp_path / "in")
    (tmp_path / "pictures").mkdir()
    folders = [
        path for path in (tmp_path / "in").iterdir() if path.is_dir() and path.name != "annotations"
    ]
    for folder in folders:
        folder.rename(tmp_path / "pictures" / folder.name)
    config = source_of(sample.kind, tmp_path / "in", images=str(tmp_path / "pictures"))
    rows = [row for rows in read_all(config).values() for row in rows]
    assert len({row.key for row in rows if isinstance(row, ImageRow)}) == sample.images
    with pytest.raises(SourceError, match=r"nowhere: .*reading\.images"):
        list_all(source_of(sample.kind, tmp_path / "in", images=str(tmp_path / "nowhere")))


@every_kind
def test_what_is_no_such_source_is_named(sample: Sample, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in ("missing", "empty"):
        with pytest.raises(SourceError, match=f"{path}: "):
            list_all(source_of(sample.kind, tmp_path / path))
    with pytest.raises(SourceError, match="s3://bucket/x"):
        list_all(source_of(sample.kind, Path("x")).model_copy(update={"path": "s3://bucket/x"}))


@every_kind
def test_unknown_splits_are_named_with_those_there_are(sample: Sample, tmp_path: Path) -> None:
    sample.write(tmp_path)
    with pytest.raises(SourceError, match=r"reading\.splits .*'dev'.*(train|coco_train)"):
        list_all(source_of(sample.kind, tmp_path, splits=["dev"]))


@pytest.mark.parametrize("sample", [SAMPLES[0], SAMPLES[4]], ids=lambda sample: sample.kind)
def test_a_whole_build_counts_right_and_owes_nothing_after(sample: Sample, tmp_path: Path) -> None:
    sample.write(tmp_path / "in")
    put(tmp_path / "in", sample.file, b"no image")
    source = f"{sample.kind}:{tmp_path / 'in'}"
    counts, _ = build(source, tmp_path / "out")
    assert list(counts) == list(TABLES[: TABLES.index("pairs") + 1])
    brings = bool(READERS[sample.kind].brings)
    searched = [
        "embeddings",
        "admitted",
        "neighbours",
        "keypoints",
        "similar_pairs",
        "matched_pairs",
    ]
    # Three images are too unlike to pair.
    assert [name for name, count in counts.items() if count.of] == [
        "images",
        *(PAIRS if brings else searched),
    ]
    images = counts["images"]
    assert images.pending == images.failed == 0
    # Of a pair with a bad image the other is missing too, unless another pair shows it.
    shared = sample.kind in ("clevr-change", "localized-narratives")
    assert images.rows == sample.images - (1 if shared else 2)
    if brings:
        found, bad = len(sample.names) - 1, {"not an image": 1}
        given, pairs = (counts[name] for name in PAIRS)
        assert (given.of, given.ok, given.dropped, given.rows, given.reasons) == (
            found + 1,
            found,
            1,
            found,
            bad,
        )
        assert (pairs.of, pairs.ok, pairs.dropped, pairs.rows, pairs.reasons) == (
            found,
            found,
            0,
            found,
            {},
        )
    again, shards = build(source, tmp_path / "out")
    assert (again, shards) == (counts, 0)


def test_the_same_record_twice_is_read_once(tmp_path: Path) -> None:
    write_omnidiff(tmp_path / "in")
    line = (tmp_path / "in/train.jsonl").read_bytes().split(b"\n")[0]
    put_lines(tmp_path / "in", "train.jsonl", line, line, line)
    counts, _ = build(f"omnidiff:{tmp_path / 'in/train.jsonl'}", tmp_path / "out")
    found = {name: (count.of, count.ok, count.rows) for name, count in counts.items() if count.of}
    assert found == {"images": (1, 1, 2), "given_pairs": (1, 1, 1), "pairs": (1, 1, 1)}
