import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from pairwright.schemas.config import Profile
from pairwright.schemas.rows import Dropped, Failed
from pairwright.tasks.report.query_tables import Tables
from pairwright.tasks.report.write_report import Subject, sample_pairs
from tests.tasks.report.browser import open_page, shown_in
from tests.tasks.report.handmade import HOSTILE, SPLITS, Handmade, build_handmade, make_whole
from tests.tasks.report.handmade_removals import TOO_LARGE
from tests.tasks.report.pages import PHONE, SCRIPTS, WITH_DECISIONS, lacking, read, report

NAMES = ["index.html", "pairs-1.html", "pairs-2.html"]


def test_pages_are_well_formed_and_refer_to_existing_files(whole) -> None:
    assert sorted(path.name for path in whole.glob("*.html")) == NAMES
    pages = {name: read(whole, name) for name in NAMES}
    for name, page in pages.items():
        assert len(page.ids) == len(set(page.ids))
        for link in page.links:
            file, _, mark = link.partition("#")
            assert not re.match(r"[a-z]+:|/", link), f"{link} leaves the report"
            assert (whole / (file or name)).is_file(), link
            assert not mark or mark in pages[file or name].ids, link
        overlays = "|".join(page.all_of("data-mask") + page.all_of("data-changed")).split("|")
        assert all((whole / src).is_file() for src in overlays if src)
    used = "".join((whole / name).read_text() for name in NAMES)
    assert all(f"images/{path.name}" in used for path in (whole / "images").iterdir())


@pytest.mark.parametrize(
    ("name", "scripts"), [("index.html", SCRIPTS), ("pairs-1.html", WITH_DECISIONS)]
)
def test_texts_are_shown_not_interpreted(whole, name, scripts) -> None:
    page = read(whole, name)
    page.check_inert(scripts)
    (policy,) = [
        meta["content"]
        for meta in page.attributes("meta")
        if meta.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "hand <b>made</b>" in page.text
    assert read(whole, "pairs-1.html").text.count(HOSTILE) >= 10


def test_the_texts_of_a_pair_are_on_its_page(whole) -> None:
    phrases = """
        Chosen by hand
        Rejected edited
        What differs?
        Both images show a table.
        taken
        colour:
        Which one is described
        same scene
        in common Both images show a table.
        Heat-map of where
    """
    assert lacking(read(whole, "pairs-1.html").words, phrases) == []
    marks = re.findall(r"<mark>(.*?)</mark>", (whole / "pairs-1.html").read_text())
    assert {"ball", "cube"} <= set(marks)


def test_the_removals_of_a_pair_are_on_its_page(whole) -> None:
    words = " ".join(read(whole, name).words for name in NAMES[1:])
    phrases = f"""
        removed from the first image taken
        Score 0.50 its sum of cosines (Eq. 9) 1.00
        Of 6 candidates
        tag 0.90 · box 0.80 · mask 0.97
        3 tags refused
        table {TOO_LARGE}
        cloud no box
        4 passed the checks, 2 failed
        Still detected detected 0.60 before, 0.50 after
        It shows 25.0% of the image.
        No removal was chosen
    """
    assert lacking(words, phrases) == []
    rectangles = read(whole, "pairs-1.html").attributes("rect")
    boxes = [box for box in rectangles if box.get("class") == "over"]
    assert len(boxes) == 10 * 2 * 4


def test_the_same_dataset_gives_the_same_report(tmp_path, whole, made) -> None:
    again = report(tmp_path, made, pairs=14)
    first, second = (
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for root in (whole, again)
    )
    assert first == second


def test_a_build_that_stopped_at_mining_shows_its_pairs(tmp_path, small) -> None:
    folder = report(tmp_path, small, until="pairs")
    index, pairs = (read(folder, name).words for name in NAMES[:2])
    assert "Similarity of the pairs" in index
    assert not [word for word in ("Lengths", "Rejected texts", "preferences") if word in index]
    absent = ("Chosen", "Rejected", "Found elements", "Captions", "No text")
    assert not [word for word in absent if word in pairs]


def test_rows_still_owed_are_counted(tmp_path, whole) -> None:
    made = make_whole(2, 2)
    failed = [Failed(source_key=row.key, reason="timeout") for row in made.of("images")]
    made.tables["captions"] = failed
    words = read(report(tmp_path, made)).words
    assert "4 rows " in words
    assert "still unfinished;" not in read(whole).text


@pytest.mark.parametrize(
    ("source", "words"),
    [("scenes:7", "rendered scenes"), ("folder:/home/me/photographs/", "folder photographs")],
)
def test_a_source_in_words_without_its_place(source, words) -> None:
    about = {"name": "", "version": "", "made": "", "counts": (), "pairs": 0}
    assert Subject(profile=Profile(source=source), **about).source == words


def test_a_report_of_an_empty_dataset(tmp_path) -> None:
    folder = report(tmp_path, Handmade())
    assert [path.name for path in folder.glob("*.html")] == ["index.html"]
    assert "Nothing here yet" in read(folder).text


def test_a_report_of_images_without_pairs(tmp_path, small) -> None:
    lonely = [Dropped(source_key=row.key, reason="no neighbours") for row in small.of("images")]
    made = Handmade({"images": small.tables["images"], "pairs": lonely})
    page = read(report(tmp_path, made))
    assert "No pairs yet" in page.text
    assert "no neighbours" in page.text


def test_a_report_of_pairs_without_graphs_groups_or_texts(tmp_path, small) -> None:
    images = [replace(row, graph=None, group="") for row in small.of("images")]
    lost = "swapped edited retrieved preferences comparisons captions tags rejections"
    made = Handmade({**small.tables, "images": images, **{name: [] for name in lost.split()}})
    folder = report(tmp_path, made)
    page = read(folder, "pairs-1.html")
    assert "No preference was made from this pair." in page.text
    assert "same scene" not in page.text
    pages = [read(folder, path.name).text for path in folder.glob("pairs-*")]
    assert "No text was written about this pair." in "".join(pages)
    assert "Precision" not in read(folder).text


def sources_of(frame):
    """Return the file of the image itself, and of the other one."""
    return [frame.locator(f".{side}").evaluate("(image) => image.src") for side in ("own", "other")]


def pixels(frame, folder):
    """Take a picture of the frame's upper part, where there is no label."""
    path = folder.parent / "seen.png"
    frame.screenshot(path=path)
    with Image.open(path) as seen:
        return np.asarray(seen.convert("RGB"), np.int16)[: seen.height * 3 // 4]


def test_hovering_flickers_between_the_two_images(browser, whole) -> None:
    desk = {"viewport": {"width": 1280, "height": 900}}
    with open_page(browser, whole / "pairs-1.html", **desk) as (page, _):
        frame = page.locator(".look .frame").first
        frame.scroll_into_view_if_needed()
        own, other = sources_of(frame)
        assert own != other
        assert shown_in(frame) == own
        before = pixels(frame, whole)
        frame.hover()
        assert shown_in(frame) == other
        # The other one comes and goes: a slow machine may miss it at first.
        assert any(np.abs(pixels(frame, whole) - before).max() > 50 for _ in range(20))
        handle = frame.element_handle()
        page.wait_for_function("(frame) => !frame.classList.contains('swapped')", arg=handle)
        page.wait_for_function("(frame) => frame.classList.contains('swapped')", arg=handle)
        page.mouse.move(2, 2)
        assert shown_in(frame) == own


SWAPPED = "document.querySelector('.frame').classList.contains('swapped')"


@pytest.mark.slow
def test_keys_and_touch_flicker_too(browser, whole) -> None:
    with open_page(browser, whole / "index.html") as (page, _):
        frame = page.locator(".frame").first
        frame.focus()
        page.keyboard.press("Enter")
        assert frame.get_attribute("aria-pressed") == "true"
        page.wait_for_function(SWAPPED)
        page.keyboard.press("Escape")
        assert frame.get_attribute("aria-pressed") == "false"
        assert shown_in(frame) == sources_of(frame)[0]
    with open_page(browser, whole / "index.html", **PHONE) as (page, _):
        frame = page.locator(".frame").first
        frame.tap()
        page.wait_for_function(SWAPPED)
        frame.tap()
        assert shown_in(frame) == sources_of(frame)[0]


@pytest.mark.slow
def test_nothing_moves_by_itself_for_those_who_ask(browser, whole) -> None:
    with open_page(browser, whole / "index.html", reduced_motion="reduce") as (page, _):
        frame = page.locator(".frame").first
        own, other = sources_of(frame)
        frame.hover()
        page.wait_for_timeout(700)
        assert shown_in(frame) == own
        frame.click()
        page.wait_for_timeout(700)
        assert shown_in(frame) == other
        frame.click()
        assert shown_in(frame) == own


def test_a_sample_of_pairs_has_all_splits_and_no_pair_twice(tmp_path, made) -> None:
    with build_handmade(tmp_path, made) as (build, _):
        few, whole = (sample_pairs(Tables(build), count) for count in (7, 1000))
        assert sample_pairs(Tables(build), 0) == []
    assert len(few) == len(set(few)) == 7
    assert sorted(whole) == sorted(row.key for row in made.of("pairs"))
    splits = {row.subject: row.split for row in made.of("splits")}
    assert set(SPLITS) <= {splits.get(key) for key in few}
