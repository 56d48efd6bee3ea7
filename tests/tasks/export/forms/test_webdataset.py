"""What the webdataset library, ``datasets`` and our own reader make of exported shards."""

import json
import tarfile
from dataclasses import replace

import datasets
import numpy as np
import pytest

from pairwright.schemas.rows import make_key
from pairwright.tasks.images.decode import decode_rgb
from tests.fixtures.exports import export_some, files_of, preference
from tests.fixtures.sources import Source

ROWS = [preference(number, rejected_images=2, negatives=["no"]) for number in range(3)]
IMAGES = ("image1.png", "image2.png", "rejected1.png", "rejected2.png")


@pytest.fixture(scope="module")
def shard(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    export_some(folder / "out", ROWS, form="webdataset")
    return folder / "out/data/train-000000.tar"


# It leaves the file to the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_webdataset_reads_samples_with_their_images(shard):
    import webdataset

    samples = list(webdataset.WebDataset(f"file:{shard}", shardshuffle=False).decode("rgb8"))
    assert [sample["__key__"] for sample in samples] == [row.key for row in ROWS]
    for sample, row in zip(samples, ROWS, strict=True):
        for name, data in zip(IMAGES, row.images + row.rejected_images, strict=True):
            assert np.array_equal(sample[name], decode_rgb(data))
        record = sample["json"]
        assert {"kind", "description", "claims", "rejected_claims"} < record.keys()
        assert (record["chosen"], record["rejected"]) == (row.chosen, row.rejected)
        assert record["split"] == "train"
        assert record["prompt"] == [{"role": "user", "text": "What differs?"}]
        assert record["negatives"] == [{"text": "no", "maker": "by hand", "note": "", "score": 0.0}]
        assert record["licences"] == ["CC0-1.0", "CC0-1.0"]


def test_datasets_loads_rows_of_one_kind(shard, offline):
    files = {"train": str(shard)}
    rows = datasets.load_dataset("webdataset", data_files=files, split="train", cache_dir=offline)
    assert [row["__key__"] for row in rows] == [row.key for row in ROWS]
    assert np.array_equal(np.asarray(rows[0]["image2.png"]), decode_rgb(ROWS[0].images[1]))


def test_our_own_reader_finds_the_images(tmp_path):
    export_some(tmp_path, [preference(1)], form="webdataset")
    (keys,) = Source("webdataset", tmp_path / "data/train-000000.tar").keys().values()
    assert keys == [make_key(data) for data in preference(1).images]


def test_shards_are_cut_by_size_and_equal_rows_give_equal_bytes(tmp_path):
    rows = [*ROWS, replace(preference(7), split="test")]
    tally = export_some(tmp_path, rows, form="webdataset", bytes_per_file=1)
    shards = files_of(tmp_path / "data")
    assert sorted(shards) == [
        "test-000000.tar",
        *(f"train-00000{number}.tar" for number in range(3)),
    ]
    assert sum(size for _, size in tally.sizes.values()) == sum(map(len, shards.values()))
    export_some(tmp_path, rows, form="webdataset", bytes_per_file=1)
    assert files_of(tmp_path / "data") == shards
    with tarfile.open(tmp_path / "data/train-000000.tar") as tar:
        assert all(member.mtime == 0 and member.uid == 0 for member in tar)
        record = json.load(tar.extractfile(f"{ROWS[0].key}.json"))
    assert record["key"] == ROWS[0].key
