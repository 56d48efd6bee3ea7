"""The caption is the first answer; rows without one, or without an image, are dropped; a build through mining."""

import pyarrow as pa
import pytest

from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import ImageRow, make_key
from tests.fixtures.pictures import picture
from tests.fixtures.tables import IMAGE, build, config_of, read_all, reasons_of, struct, write_table

KIND = "llava-recap"
TURNS = pa.list_(pa.struct([("from", pa.string()), ("value", pa.string())]))
DATA = [picture(seed) for seed in range(6)]


def talk(answer, question="<image>\nPlease generate a detailed caption of this image."):
    return [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]


CONVERSATIONS = [
    talk(" A dog on a lawn. "),
    talk("A cat."),
    [{"from": "human", "value": "<image>"}],
    None,
    talk("A tree."),
    [*talk("First."), *talk("Second.")],
]


@pytest.fixture
def folder(tmp_path):
    columns = {
        "id": [f"00{n}" for n in range(6)],
        "image": [struct(one) for one in (*DATA[:4], b"bad", DATA[5])],
        "conversations": CONVERSATIONS,
        "data_source": ["cc3m"] * 6,
    }
    path = tmp_path / "set" / "data" / "train-00000-of-00281.parquet"
    write_table(path, columns, types={"image": IMAGE, "conversations": TURNS})
    return tmp_path / "set"


def test_answers_are_captions(folder):
    items, found = read_all(config_of(KIND, folder))
    name = "data/train-00000-of-00281.parquet"
    row = found[f"{name}#0"][0]
    assert isinstance(row, ImageRow)
    assert (row.key, row.captions, row.source_key) == (make_key(DATA[0]), ("A dog on a lawn.",), items[0].key)
    assert (row.name, row.source, row.licence, row.group) == (f"{name}#0 000", KIND, "", "")
    assert found[f"{name}#5"][0].captions == ("First.",)
    assert reasons_of(found) == {f"{name}#2": "no caption", f"{name}#3": "no caption", f"{name}#4": "not an image"}


def test_another_table_is_refused_with_its_columns(tmp_path):
    write_table(tmp_path / "a.parquet", {"image": [DATA[0]], "text": ["a"]})
    with pytest.raises(SourceError, match=r"conversations, id; .*image \(binary\), text"):
        read_all(config_of(KIND, tmp_path))


def test_listing_is_stable_and_limited(folder):
    items, _ = read_all(config_of(KIND, folder))
    assert [item.key for item in read_all(config_of(KIND, folder), 3)[0]] == [item.key for item in items[:3]]
    with pytest.raises(SourceError, match="nowhere"):
        read_all(config_of(KIND, folder / "nowhere"))


def test_a_build_mines_its_images(folder, tmp_path):
    counts, _ = build(f"{KIND}:{folder}", tmp_path / "out")
    assert (counts["images"].of, counts["images"].rows) == (6, 3)
    assert counts["similar_pairs"].of == 3
    assert counts["pairs"].of == counts["similar_pairs"].rows
    assert build(f"{KIND}:{folder}", tmp_path / "out")[1] == 0
