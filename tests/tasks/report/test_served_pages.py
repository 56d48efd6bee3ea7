"""Pages of a dataset that served models wrote: what they say, that they are safe, and that they
fit."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tasks.report.browser import broken_images, open_page, overflows
from tests.tasks.report.handmade import HOSTILE, Handmade
from tests.tasks.report.handmade_served import CHAT, JUDGE, LANGUAGE, LINE_SERVED
from tests.tasks.report.pages import (
    PHONE,
    SCRIPTS,
    WITH_DECISIONS,
    lacking,
    read,
    report,
    words_of,
)

DESK = {"viewport": {"width": 1280, "height": 900}}
LONG = "W" * 400
OPEN_ALL = "for (const one of document.querySelectorAll('details')) one.open = true"


@pytest.fixture(scope="module")
def pages(tmp_path_factory, served):
    return report(tmp_path_factory.mktemp("served"), served, pairs=23, line=LINE_SERVED)


def article(folder, mark):
    """Return the words about the pair whose part of a page has a mark."""
    pages = [path.read_text() for path in sorted(folder.glob("pairs-*.html"))]
    parts = [part for page in pages for part in page.split("<article")[1:]]
    return words_of(next(part for part in parts if mark in part))


def test_a_pair_tells_who_wrote_its_texts_and_the_results_of_checks(pages, served):
    pair = served.of("pairs")[2].key
    key = next(row.key for row in served.of("preferences") if row.subject == pair)
    phrases = f"""
        Chosen {CHAT}
        swapped passed 0.90
        judged {JUDGE}
        There is no difference between the two images.
        1 other description was written Failed judged
        judged failed 1.00 judge: low rating
        Commonalities and differences {LANGUAGE}
        locations, relative positions
        Round 3 of 4 was drawn.
        about the second image
        Edit instruction
    """
    assert lacking(article(pages, f'data-key="{key}"'), phrases) == []


def test_a_pair_without_an_accepted_description_tells_why(pages):
    text = article(pages, "No description of this pair was accepted.")
    assert "other description" not in text
    assert "Failed grounded" in text
    assert "grounding: second half fits the first image as well" in text


@pytest.mark.parametrize("maker", ["retrieved", "swapped", "edited", "sampled", "counterfactual"])
def test_what_differs_from_the_chosen_text_is_marked(pages, maker):
    html = "".join(path.read_text() for path in pages.glob("pairs-*.html"))
    boxes = re.findall(rf'<span class="how">{maker}.*?</p>', html, re.DOTALL)
    assert any("<mark>" in box for box in boxes)


def test_texts_are_shown_not_interpreted(pages):
    hostile = 0
    for path in sorted(pages.glob("*.html")):
        page = read(pages, path.name)
        page.check_inert(SCRIPTS if path.name == "index.html" else WITH_DECISIONS)
        assert {tag for tag, _ in page.tags}.isdisjoint({"iframe", "object", "form", "base"})
        assert {image["src"].split("/")[0] for image in page.attributes("img")} == {"images"}
        hostile += page.text.count(HOSTILE)
    assert hostile > 100


def test_pages_open_without_complaint(browser, pages):
    for path in sorted(pages.glob("*.html")):
        with open_page(browser, path, **DESK) as (page, watched):
            assert broken_images(page) == []
            assert watched.complaints == []
            assert watched.from_elsewhere == []
            assert len(watched.requests) > 3
            assert "owned" not in page.title()
            assert not overflows(page)


@pytest.mark.slow
def test_pages_fit_a_phone_even_with_words_that_do_not_end(browser, tmp_path, served):
    hostile = Handmade(dict(served.tables))
    hostile.tables["questions"] = [
        replace(row, question=LONG, answer=LONG) for row in served.of("questions")
    ]
    hostile.tables["described"] = [
        replace(row, text=row.text + LONG, model=f"model-{LONG}") for row in served.of("described")
    ]
    hostile.tables["judged"] = []
    for row in served.of("judged"):
        requests = tuple(replace(request, model=LONG) for request in row.served)
        why = row.why and LONG
        hostile.add(judged=replace(row, why=why, text=LONG, served=requests))
    folder = report(tmp_path, hostile, pairs=10, line=LINE_SERVED)
    for path in sorted(folder.glob("*.html")):
        for size in (PHONE, DESK):
            with open_page(browser, path, **size) as (page, _):
                page.evaluate(OPEN_ALL)
                assert not overflows(page), (path.name, size)
                for table in page.locator(".scroll").all():
                    assert table.evaluate("(box) => box.scrollWidth <= box.clientWidth"), "cut"


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["index.html", "pairs-1.html"])
def test_text_stands_out_from_its_ground(browser, pages, scheme, name):
    script = (Path(__file__).parent / "contrast.js").read_text()
    with open_page(browser, pages / name, color_scheme=scheme) as (page, _):
        page.evaluate(OPEN_ALL)
        assert page.evaluate(script) == []
