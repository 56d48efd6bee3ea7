import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from pairwright.schemas.config import Profile
from pairwright.schemas.rows import Dropped, Failed
from pairwright.tasks.pages.environment import count_things
from pairwright.tasks.report.query_tables import Tables
from pairwright.tasks.report.write_report import Subject, sample_pairs
from tests.tasks.report.browser import open_page, shown_in
from tests.tasks.report.handmade import HOSTILE, Handmade, build_handmade, make_whole
from tests.tasks.report.handmade_removals import TOO_LARGE
from tests.tasks.report.pages import PHONE, SCRIPTS, WITH_DECISIONS, read, report


@pytest.fixture(scope="module")
def whole(tmp_path_factory, made):
    return report(tmp_path_factory.mktemp("whole"), made, pairs=14)


def test_pages_are_well_formed_and_refer_to_what_is_there(whole):
    names = sorted(path.name for path in whole.glob("*.html"))
    assert names == ["index.html", "pairs-1.html", "pairs-2.html"]
    ids = {name: read(whole, name).ids for name in names}
    for name in names:
        assert len(ids[name]) == len(set(ids[name]))
        for link in read(whole, name).links:
            file, _, mark = link.partition("#")
            assert not re.match(r"[a-z]+:|/", link), f"{link} leaves the report"
            assert (whole / (file or name)).is_file(), link
            assert not mark or mark in ids[file or name], link
        for button in (attributes for tag, attributes in read(whole, name).tags if tag == "button"):
            for src in (button.get("data-mask", "") + "|" + button.get("data-changed", "")).split(
                "|"
            ):
                assert not src or (whole / src).is_file()
    used = "".join((whole / path.name).read_text() for path in whole.glob("*.html"))
    assert all(f"images/{path.name}" in used for path in (whole / "images").iterdir())


def test_texts_are_shown_not_interpreted(whole, made):
    for name in ("index.html", "pairs-1.html"):
        page = read(whole, name)
        scripts = [attributes for tag, attributes in page.tags if tag == "script"]
        assert scripts == (SCRIPTS if name == "index.html" else WITH_DECISIONS)
        assert not any(
            name.startswith("on") or name == "style"
            for _, attributes in page.tags
            for name in attributes
        )
        policy = next(
            a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"
        )
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert "http" not in policy
        assert "hand <b>made</b>" in page.text
    assert read(whole, "pairs-1.html").text.count(HOSTILE) >= 10


def test_what_is_known_of_a_pair_is_on_its_page(whole, made):
    page = read(whole, "pairs-1.html")
    text = " ".join(page.text.split())
    for words in (
        "Chosen by hand",
        "Rejected edited",
        "What differs?",
        "Both images show a table.",
        "taken",
        "colour: ",
        "Which one is described",
        "same scene",
        "in common Both images show a table.",
        "Heat-map of where",
    ):
        assert words in text
    marks = re.findall(r"<mark>(.*?)</mark>", (whole / "pairs-1.html").read_text())
    assert {"ball", "cube"} <= set(marks)
    text = " ".join(
        read(whole, "pairs-1.html").text.split() + read(whole, "pairs-2.html").text.split()
    )
    for words in (
        "Rejected image",
        "removed from the first image taken",
        ("Score 0.50 its sum of cosines (Eq. 9) 1.00"),
        (
            "Of 6 candidates, this removal makes the text fit worst among those that passed "
            "their checks."
        ),
        "tags: ram",
        "tag 0.90 · box 0.80 · mask 0.97",
        "3 tags refused",
        f"table {TOO_LARGE}",
        "cloud no box",
        "4 passed the checks, 2 failed",
        ("Still detected detected 0.60 before, 0.50 after"),
        "A random crop of the second image fallback",
        "It shows 25.0% of the image.",
        "No removal was chosen: no removal changes how the text fits.",
    ):
        assert words in text, words
    boxes = [
        given
        for tag, given in read(whole, "pairs-1.html").tags
        if tag == "rect" and given.get("class") == "over"
    ]
    assert len(boxes) == 10 * 2 * 4


def test_the_same_dataset_gives_the_same_report(tmp_path, whole, made):
    again = report(tmp_path, made, pairs=14)
    files = {
        path.relative_to(whole): path.read_bytes() for path in whole.rglob("*") if path.is_file()
    }
    dated = {
        path.relative_to(again): path.read_bytes() for path in again.rglob("*") if path.is_file()
    }
    assert files == dated


def test_a_build_that_stopped_at_mining_shows_its_pairs(tmp_path, made):
    folder = report(tmp_path, made, until="pairs")
    index, pairs = (
        " ".join(read(folder).text.split()),
        " ".join(read(folder, "pairs-1.html").text.split()),
    )
    assert "Similarity of the pairs" in index
    for word in ("Lengths", "Rejected texts", "preferences"):
        assert word not in index
    for word in ("Chosen", "Rejected", "Found elements", "Captions", "No text"):
        assert word not in pairs


def test_rows_still_owed_are_said(tmp_path, whole):
    assert [count_things(number, "pair") for number in (0, 1, 1000)] == [
        "0 pairs",
        "1 pair",
        "1,000 pairs",
    ]
    made = make_whole(2, 2)
    made.tables["captions"] = [
        Failed(source_key=row.key, reason="timeout") for row in made.of("images")
    ]
    text = " ".join(read(report(tmp_path, made)).text.split())
    assert "4 rows " in text
    assert "still owed;" not in read(whole).text


def test_a_source_in_words_without_its_place():
    for source, words in (
        ("scenes:7", "rendered scenes"),
        ("folder:/home/me/photographs/", "folder photographs"),
    ):
        told = Subject(
            name="", version="", made="", counts=(), profile=Profile(source=source), pairs=0
        )
        assert told.source == words


def test_an_empty_dataset_says_so(tmp_path):
    folder = report(tmp_path, Handmade())
    assert [path.name for path in folder.glob("*.html")] == ["index.html"]
    assert "Nothing here yet" in read(folder).text


def test_images_without_pairs_say_so(tmp_path, made):
    alone = Handmade({"images": made.tables["images"]})
    alone.tables["pairs"] = [
        Dropped(source_key=row.key, reason="no neighbours") for row in made.of("images")
    ]
    page = read(report(tmp_path, alone))
    assert "No pairs yet" in page.text
    assert "no neighbours" in page.text


def test_pairs_without_graphs_groups_or_texts(tmp_path):
    made = make_whole()
    made.tables["images"] = [replace(row, graph=None, group="") for row in made.of("images")]
    for name in (
        "swapped",
        "edited",
        "retrieved",
        "preferences",
        "comparisons",
        "captions",
        "tags",
        "rejections",
    ):
        made.tables[name] = []
    folder = report(tmp_path, made)
    page = read(folder, "pairs-1.html")
    assert "No preference was made from this pair." in page.text
    assert "No text was written about this pair." in "".join(
        read(folder, p.name).text for p in folder.glob("pairs-*")
    )
    assert "same scene" not in page.text
    assert "Precision" not in read(folder).text


def test_hovering_flickers_between_the_two_images(browser, whole):
    with open_page(browser, whole / "pairs-1.html", viewport={"width": 1280, "height": 900}) as (
        page,
        _,
    ):
        frame = page.locator(".look .frame").first
        frame.scroll_into_view_if_needed()
        own, other = (
            frame.locator(f".{side}").evaluate("(image) => image.src") for side in ("own", "other")
        )
        assert own != other
        assert shown_in(frame) == own
        before = pixels(frame, whole)
        frame.hover()
        assert shown_in(frame) == other
        # The second image of the pair is what the reader sees in its place, and the first comes
        # back by itself.
        assert np.abs(pixels(frame, whole) - before).max() > 50
        page.wait_for_function(
            "(frame) => !frame.classList.contains('swapped')", arg=frame.element_handle()
        )
        page.wait_for_function(
            "(frame) => frame.classList.contains('swapped')", arg=frame.element_handle()
        )
        page.mouse.move(2, 2)
        assert shown_in(frame) == own


def pixels(frame, folder):
    """Take a picture of the frame's upper part, where there is no label."""
    path = folder.parent / "seen.png"
    frame.screenshot(path=path)
    with Image.open(path) as seen:
        return np.asarray(seen.convert("RGB"), np.int16)[: seen.height * 3 // 4]


@pytest.mark.slow
def test_keys_and_touch_flicker_too(browser, whole):
    with open_page(browser, whole / "index.html") as (page, _):
        frame = page.locator(".frame").first
        frame.focus()
        page.keyboard.press("Enter")
        assert frame.get_attribute("aria-pressed") == "true"
        page.wait_for_function("document.querySelector('.frame').classList.contains('swapped')")
        page.keyboard.press("Escape")
        assert frame.get_attribute("aria-pressed") == "false"
        assert shown_in(frame) == frame.locator(".own").evaluate("(image) => image.src")
    with open_page(browser, whole / "index.html", **PHONE) as (page, _):
        frame = page.locator(".frame").first
        frame.tap()
        page.wait_for_function("document.querySelector('.frame').classList.contains('swapped')")
        frame.tap()
        assert shown_in(frame) == frame.locator(".own").evaluate("(image) => image.src")


@pytest.mark.slow
def test_nothing_moves_by_itself_for_those_who_ask(browser, whole):
    with open_page(browser, whole / "index.html", reduced_motion="reduce") as (page, _):
        frame = page.locator(".frame").first
        own, other = (
            frame.locator(f".{side}").evaluate("(image) => image.src") for side in ("own", "other")
        )
        frame.hover()
        page.wait_for_timeout(700)
        assert shown_in(frame) == own
        frame.click()
        page.wait_for_timeout(700)
        assert shown_in(frame) == other
        frame.click()
        assert shown_in(frame) == own


def test_sample_of_a_dataset(tmp_path):
    made = make_whole()
    keys = {row.key for row in made.of("pairs")}
    with build_handmade(tmp_path, made) as (build, _):
        few, all_of_them = sample_pairs(Tables(build), 7), sample_pairs(Tables(build), 1000)
        assert sample_pairs(Tables(build), 0) == []
    assert len(few) == len(set(few)) == 7
    assert sorted(all_of_them) == sorted(keys)
    splits = {row.subject: row.split for row in made.of("splits")}
    assert {"train", "validation", "test"} <= {splits.get(key) for key in few}
