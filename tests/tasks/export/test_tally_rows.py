"""Which preferences are exported, by the licences and sources of their images."""

from dataclasses import replace

import pytest

from pairwright.schemas.rows import PreferenceRow, RemovalScore
from pairwright.tasks.export.tally_rows import Selection, kinds_of
from tests.tasks.report.handmade import make_whole

ROW: PreferenceRow = make_whole().of("preferences")[0]


@pytest.mark.parametrize(
    ("licences", "wanted", "kept"),
    [
        (("CC0-1.0", "CC-BY-4.0"), (), True),
        (("CC0-1.0", "CC-BY-4.0"), ("cc0-1.0", "cc-by-4.0"), True),
        (("CC0-1.0", ""), ("CC0-1.0",), False),
        (("CC0-1.0", ""), ("CC0-1.0", "unstated"), True),
    ],
)
def test_every_image_must_be_under_a_wanted_licence(licences, wanted, *, kept: bool) -> None:
    assert Selection(licences=wanted).keeps(replace(ROW, licences=licences)) == kept


def test_all_that_is_selected_must_fit() -> None:
    row = replace(ROW, licences=("MIT", "MIT"), sources=("folder", "jsonl"))
    assert Selection(licences=("mit",), sources=("folder", "jsonl")).keeps(row)
    assert not Selection(licences=("mit",), sources=("folder",)).keeps(row)
    assert not Selection(licences=("CC0-1.0",), sources=("folder", "jsonl")).keeps(row)
    row = replace(
        ROW, split="test", kind="list", rejected_maker="edited", rejected_image_maker="crop"
    )
    assert Selection(splits=("test", "train")).keeps(row)
    assert not Selection(splits=("train",)).keeps(row)
    assert kinds_of(row) == {"pair", "list", "edited", "crop"}
    for kinds in (("edited",), ("list",), ("removal", "Crop"), ("pair",)):
        assert Selection(kinds=kinds).keeps(row)
    for kinds in (("image",), ("removal", "swapped"), ("short",)):
        assert not Selection(kinds=kinds).keeps(row)
    assert kinds_of(replace(row, images=row.images[:1], kind="", rejected_maker="")) == {
        "image",
        "crop",
    }
    scores = [
        RemovalScore(removal="a", tag="ball", side=0, score=0.9, chosen=False),
        RemovalScore(removal="b", tag="cup", side=1, score=0.5, chosen=True),
    ]
    row = replace(ROW, removal_scores=tuple(scores))
    assert Selection(score=0.5).keeps(row)
    assert not Selection(score=0.51).keeps(row)
    assert not Selection(score=0.0).keeps(replace(row, removal_scores=tuple(scores[:1])))
