"""What ``status --refused`` says of rows that are kept with a reason, on a small build with strict
thresholds."""

from collections import Counter
from pathlib import Path

import pytest

from pairwright.flows.versions.show_status import list_refused
from pairwright.tasks.store.files import Folder
from tests.fixtures.builds import ok_rows
from tests.flows.conftest import SMALL, WIDE, build, with_images_of

STRICT = ["inspection.max_difference=0", "rejections.min_drop=0.9"]


@pytest.fixture(scope="module")
def strict(rendered: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = with_images_of(rendered, tmp_path_factory.mktemp("strict") / "out")
    return build(out, None, settings=[*SMALL, *WIDE, *STRICT])


@pytest.fixture(scope="module")
def names(strict: Path) -> dict[str, str]:
    return {row["key"]: row["name"] for row in ok_rows(strict, "images")}


def listed(out: Path, table: str) -> list[tuple[str, str, str]]:
    return list(list_refused(Folder(str(out)), table))


def test_what_was_refused_is_named(strict: Path, names: dict[str, str]) -> None:
    tagged = {row["subject"] for row in ok_rows(strict, "tags")}
    expected = {
        ("dropped", "no chosen text needs an element of it removed", names[key])
        for key in names.keys() - tagged
    }
    assert expected
    assert set(listed(strict, "tags")) == expected
    elements = {row["key"]: row for row in ok_rows(strict, "elements")}
    failed = [row for row in ok_rows(strict, "inspected") if not row["passed"]]
    assert failed
    expected = {
        ("kept", row["why"], f"{names[row['subject']]}: {elements[row['element']]['tag']}")
        for row in failed
    }
    assert set(listed(strict, "inspected")) == expected
    pairs = {row["key"]: row for row in ok_rows(strict, "pairs")}
    refused = []
    for row in ok_rows(strict, "rejections"):
        pair = pairs[row["subject"]]
        if row["why"]:
            both = f"{names[pair['first']]} | {names[pair['second']]}"
            refused.append(("kept", row["why"], both))
    assert refused
    assert Counter(listed(strict, "rejections")) == Counter(refused)
    assert listed(strict, "masks") == []
