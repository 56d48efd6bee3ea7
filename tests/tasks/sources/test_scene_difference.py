"""Two images and the answers about them become a pair, which is not mined."""

import pyarrow as pa
import pytest

from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import ImageRow, PairRow, make_key
from tests.fixtures.pictures import picture
from tests.fixtures.tables import IMAGE, build, config_of, read_all, reasons_of, struct, write_table

KIND = "scene-difference"
NAME = "mimic_cgd/train-00000-of-00026-aa11bb22cc33dd44.parquet"
DATA = [picture(seed) for seed in range(4)]
TYPES = {
    "images": pa.list_(IMAGE),
    "texts": pa.list_(pa.struct([("user", pa.string()), ("assistant", pa.string()), ("source", pa.string())])),
}


def said(*answers):
    return [{"user": "What differs?", "assistant": answer, "source": "MIMIC-IT"} for answer in answers]


@pytest.fixture
def folder(tmp_path):
    rows = [
        ((0, 1), said("One has a dog.", " The other has a cat. ")),
        ((1, 2), said("The light differs.")),
        ((0,), said("alone")),
        ((0, 1, 2), said("three")),
        ((2, 3), said("", None)),
        ((3, 3), said("the same")),
        ((0, 1), None),
    ]
    columns = {
        "images": [[struct(DATA[n]) for n in images] for images, _ in rows],
        "texts": [texts for _, texts in rows],
    }
    write_table(tmp_path / "cauldron" / NAME, columns, types=TYPES)
    return tmp_path / "cauldron"


def test_rows_become_pairs_with_their_answers(folder):
    items, found = read_all(config_of(KIND, folder))
    first, second, pair = found[f"{NAME}#0"]
    assert isinstance(first, ImageRow)
    assert isinstance(pair, PairRow)
    assert (pair.first, pair.second) == (first.key, second.key) == (make_key(DATA[0]), make_key(DATA[1]))
    assert pair.human_differences == ("One has a dog.", "The other has a cat.")
    assert (pair.origin, pair.anchor, pair.cluster, pair.instruction) == ("given", "", -1, "")
    assert {row.source_key for row in (first, second, pair)} == {items[0].key}
    assert (first.name, second.name) == (f"{NAME}#0 image 1", f"{NAME}#0 image 2")
    assert reasons_of(found) == {
        f"{NAME}#2": "not two images",
        f"{NAME}#3": "not two images",
        f"{NAME}#4": "no text about the difference",
        f"{NAME}#5": "identical images",
        f"{NAME}#6": "no text about the difference",
    }


def test_another_subset_of_the_cauldron_is_refused(tmp_path):
    write_table(tmp_path / "a.parquet", {"images": [["a.png"]], "texts": [[]]})
    with pytest.raises(SourceError, match=r"column images .*images \(list<"):
        read_all(config_of(KIND, tmp_path))


def test_a_build_takes_the_pairs_as_they_are(folder, tmp_path):
    counts, _ = build(f"{KIND}:{folder}", tmp_path / "out")
    found = {name: (count.of, count.rows) for name, count in counts.items() if count.of}
    assert found == {"images": (7, 3), "given_pairs": (7, 2), "pairs": (2, 2)}
    assert build(f"{KIND}:{folder}", tmp_path / "out")[1] == 0
