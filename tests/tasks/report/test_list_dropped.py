import re
from dataclasses import replace

from pairwright.schemas.rows import Dropped
from pairwright.tasks.report.list_dropped import MOST, list_dropped
from pairwright.tasks.report.tables import Tables
from tests.tasks.report.handmade import HOSTILE, Handmade, build_handmade, make_images
from tests.tasks.report.pages import read, report


def refuse(number, *, detail="{n}.jpg"):
    return [Dropped(source_key=f"{n:032x}", reason="not an image", detail=detail.format(n=n)) for n in range(number)]


def dropped_of(tmp_path, rows):
    with build_handmade(tmp_path, Handmade({"images": rows}), until="images") as (build, counts):
        return list_dropped(Tables(build), counts)


def test_the_first_are_listed_and_all_are_counted(tmp_path):
    found = dropped_of(tmp_path, [*make_images(1, 2), *refuse(MOST + 3)])
    assert (found.total, found.copies, len(found.rows)) == (MOST + 3, 0, MOST)
    assert len(set(found.rows)) == MOST
    assert set(found.rows) < {(f"{n}.jpg", "not an image") for n in range(MOST + 3)}


def test_copies_are_counted_apart(tmp_path):
    first, second = make_images(1, 2)
    copy = replace(first, source_key="f" * 32, name="copy")
    found = dropped_of(tmp_path, [first, second, copy, *refuse(1)])
    assert (found.total, found.copies, found.rows) == (1, 1, (("0.jpg", "not an image"),))


def test_nothing_dropped_lists_nothing(tmp_path):
    assert dropped_of(tmp_path, make_images(1, 2)) is None


def test_the_first_page_shows_names_as_they_are(tmp_path):
    made = Handmade({"images": [*make_images(1, 2), *refuse(MOST + 1, detail=HOSTILE + " {n}")]})
    page = read(report(tmp_path, made, until="images"))
    text = " ".join(page.text.split())
    assert re.search(rf"{MOST + 1} images; .*\b{MOST}\b", text)
    assert text.count(HOSTILE) == MOST
    assert not any("onerror" in attributes for _, attributes in page.tags)
