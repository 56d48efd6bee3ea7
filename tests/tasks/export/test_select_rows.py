"""Which preferences are exported, by the licences and sources of their images."""

from dataclasses import replace

import pytest

from schemas.rows import PreferenceRow
from tasks.export.select_rows import Selection
from tests.tasks.report.handmade import make_whole

ROW: PreferenceRow = make_whole().of("preferences")[0]


@pytest.mark.parametrize(
    ("licences", "wanted", "kept"),
    [
        (("CC0-1.0", "CC-BY-4.0"), (), True),
        (("CC0-1.0", "CC-BY-4.0"), ("cc0-1.0", "cc-by-4.0"), True),
        (("CC0-1.0", "CC-BY-4.0"), ("CC0-1.0",), False),
        (("CC0-1.0", ""), ("CC0-1.0",), False),
        (("CC0-1.0", ""), ("CC0-1.0", "unstated"), True),
    ],
)
def test_every_image_must_be_under_a_wanted_licence(
    licences: tuple[str, ...], wanted: tuple[str, ...], *, kept: bool
) -> None:
    assert Selection(licences=wanted).keeps(replace(ROW, licences=licences)) == kept


def test_both_licence_and_source_must_fit() -> None:
    row = replace(ROW, licences=("MIT", "MIT"), sources=("folder", "jsonl"))
    assert Selection(licences=("mit",), sources=("folder", "jsonl")).keeps(row)
    assert not Selection(licences=("mit",), sources=("folder",)).keeps(row)
    assert not Selection(licences=("CC0-1.0",), sources=("folder", "jsonl")).keeps(row)
