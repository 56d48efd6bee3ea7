"""Pairs of our own exports, read again as given pairs."""

import numpy as np
import pyarrow as pa

import pairwright as pw
from pairwright.flows.versions.export_dataset import ExportConfig
from pairwright.schemas.rows import ImageRow
from pairwright.tasks.images.masks import encode_mask
from tests.fixtures.builds import WIDE
from tests.fixtures.pictures import picture, write_pictures
from tests.fixtures.sources import Source
from tests.fixtures.tables import IMAGE, struct, write_table

TEXTS = pa.list_(pa.string())


def test_mined_pairs_are_exported_and_read_as_given_ones(tmp_path) -> None:
    write_pictures(tmp_path / "pictures", range(4))
    album = pw.build(
        tmp_path / "pictures", out=str(tmp_path / "album"), settings=WIDE, until="mining"
    )
    album.export("hf", tmp_path / "pairs", config=ExportConfig(table="pairs"))
    mined = {(row.first, row.second) for row in album["pairs"].rows()}
    pairs = Source("parquet-pairs", tmp_path / "pairs").pairs().values()
    assert {(pair.first, pair.second) for pair in pairs} == mined
    assert {pair.origin for pair in pairs} == {"given"}


def test_a_pair_keeps_what_its_columns_say(tmp_path) -> None:
    changed = np.zeros((24, 32), bool)
    changed[:, :5] = True
    both = [struct(picture(0)), struct(picture(1))]
    columns = {
        "images": [both, [*both, *both], [both[0], both[0]], both, both],
        "human_differences": [["A cup is new."], None, None, [], []],
        "instruction": ["", "", "", "add a cup", ""],
        "change_types": [[], [], ["no_change"], [], []],
        "change_mask": [encode_mask(changed).model_dump_json(), "", "", "", "{}"],
        "names": [["a.png", "b.png"], [], [], [], []],
        "licences": [["MIT", "MIT"], [], [], [], []],
    }
    types = {"images": pa.list_(IMAGE), "human_differences": TEXTS, "change_types": TEXTS}
    types |= {"names": TEXTS, "licences": TEXTS}
    table = "data/test-00000-of-00001.parquet"
    write_table(tmp_path / table, columns, types=types)
    source = Source("parquet-pairs", tmp_path)
    assert source.reasons() == {f"{table}#1": "not two images", f"{table}#4": "damaged mask"}
    pairs = list(source.pairs().values())
    assert pairs[0].human_differences == ("A cup is new.",)
    assert pairs[0].change_mask == columns["change_mask"][0]
    assert pairs[0].split == "test"
    assert pairs[1].first == pairs[1].second
    assert (pairs[2].origin, pairs[2].instruction) == ("edit", "add a cup")
    first = next(row for row in source.rows()[f"{table}#0"] if isinstance(row, ImageRow))
    assert (first.name, first.licence) == (f"{table}#0 a.png", "MIT")
