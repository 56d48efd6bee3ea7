"""What the webdataset library, ``datasets`` and our own reader make of exported shards."""

import json
import tarfile
from dataclasses import replace
from pathlib import Path

import datasets
import numpy as np
import pytest

from pairwright.schemas.rows import ImageRow
from pairwright.tasks.images.decode import decode_rgb
from tests.fixtures.exports import export_some, preference
from tests.fixtures.tables import config_of, read_all

ROWS = [preference(number, rejected_images=2, negatives=["no"]) for number in range(3)]


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # it leaves the file to the collector
def test_webdataset_reads_samples_with_their_images(tmp_path: Path) -> None:
    import webdataset

    export_some(tmp_path / "out", ROWS, form="webdataset")
    url = f"file:{tmp_path}/out/data/train-000000.tar"
    samples = list(webdataset.WebDataset(url, shardshuffle=False).decode("rgb8"))
    assert [sample["__key__"] for sample in samples] == [row.key for row in ROWS]
    assert {"kind", "description", "claims", "rejected_claims"} < samples[0]["json"].keys()
    for sample, row in zip(samples, ROWS, strict=True):
        for name, data in zip(
            ("image1.png", "image2.png", "rejected1.png", "rejected2.png"),
            row.images + row.rejected_images,
            strict=True,
        ):
            assert np.array_equal(sample[name], decode_rgb(data))
        told = sample["json"]
        assert (told["chosen"], told["rejected"], told["split"]) == (
            row.chosen,
            row.rejected,
            "train",
        )
        assert told["prompt"] == [{"role": "user", "text": "What differs?"}]
        assert told["negatives"] == [{"text": "no", "maker": "by hand", "note": "", "score": 0.0}]
        assert told["licences"] == ["CC0-1.0", "CC0-1.0"]


def test_datasets_loads_rows_of_one_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    datasets.disable_progress_bars()
    export_some(tmp_path / "out", ROWS, form="webdataset")
    files = {"train": str(tmp_path / "out/data/train-*.tar")}
    rows = datasets.load_dataset(
        "webdataset", data_files=files, split="train", cache_dir=str(tmp_path / "cache")
    )
    assert [row["__key__"] for row in rows] == [row.key for row in ROWS]
    assert np.array_equal(np.asarray(rows[0]["image2.png"]), decode_rgb(ROWS[0].images[1]))


def test_our_own_reader_finds_the_images(tmp_path: Path) -> None:
    export_some(tmp_path / "out", [preference(1)], form="webdataset")
    _, found = read_all(config_of("webdataset", tmp_path / "out/data/train-000000.tar"))
    (read,) = found.values()
    assert {row.image for row in read if isinstance(row, ImageRow)} == set(preference(1).images)


def test_shards_are_cut_by_size_and_equal_rows_give_equal_bytes(tmp_path: Path) -> None:
    rows = [*ROWS, replace(preference(7), split="test")]
    tally = export_some(tmp_path / "out", rows, form="webdataset", bytes_per_file=1)
    files = sorted((tmp_path / "out/data").iterdir())
    assert [path.name for path in files] == [
        *(
            f"{split}-{n:06d}.tar"
            for split, n in (("test", 0), ("train", 0), ("train", 1), ("train", 2))
        )
    ]
    assert sum(size for _, size in tally.sizes.values()) == sum(
        path.stat().st_size for path in files
    )
    before = [path.read_bytes() for path in files]
    export_some(tmp_path / "out", rows, form="webdataset", bytes_per_file=1)
    assert [path.read_bytes() for path in sorted((tmp_path / "out/data").iterdir())] == before
    with tarfile.open(files[1]) as tar:
        members = {member.name: member for member in tar}
        assert all(member.mtime == 0 and member.uid == 0 for member in members.values())
        told = json.load(tar.extractfile(f"{ROWS[0].key}.json"))
    assert told["key"] == ROWS[0].key
