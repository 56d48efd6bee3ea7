"""Pages of a dataset that served models wrote: what they say, that they are safe, and that they
fit."""

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from tests.tasks.report.browser import broken_images, open_page, overflows
from tests.tasks.report.handmade import HOSTILE, Handmade
from tests.tasks.report.handmade_served import CHAT, JUDGE, LANGUAGE, LINE_SERVED, make_served
from tests.tasks.report.pages import PHONE, SCRIPTS, WITH_DECISIONS, read, report

LONG = "W" * 400


@pytest.fixture(scope="module")
def made():
    return make_served()


@pytest.fixture(scope="module")
def pages(tmp_path_factory, made):
    return report(tmp_path_factory.mktemp("served"), made, pairs=23, line=LINE_SERVED)


def plain(text):
    """Return the words of a piece of a page, tags between them or not."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", text)).split())


def article(folder, pair):
    """Return the words about one pair."""
    for path in sorted(folder.glob("pairs-*.html")):
        for part in path.read_text().split("<article")[1:]:
            if pair(part):
                return plain(part)
    raise AssertionError("no such pair")


def test_a_pair_says_who_wrote_its_texts_and_what_checks_found(pages, made):
    pair = made.of("pairs")[2].key
    key = next(row.key for row in made.of("preferences") if row.subject == pair)
    text = article(pages, lambda part: f'data-key="{key}"' in part)
    for phrase in (
        f"Chosen {CHAT}",
        "swapped passed 0.90",
        f"judged {JUDGE}",
        "There is no difference between the two images.",
        "1 other description was written Failed judged",
        "judged failed 1.00 judge: low rating",
        f"Commonalities and differences {LANGUAGE}",
        "locations, relative positions",
        "Round 3 of 4 was drawn.",
        "about the second image",
        "Edit instruction",
    ):
        assert phrase in text, phrase


def test_texts_are_marked_and_shown_not_interpreted(pages):
    text = article(pages, lambda part: "No description of this pair was accepted." in part)
    assert "other description" not in text
    assert "Failed grounded" in text
    assert "grounding: second half fits the first image as well" in text
    html = "".join(path.read_text() for path in pages.glob("pairs-*.html"))
    for maker in ("retrieved", "swapped", "edited", "sampled", "counterfactual"):
        boxes = re.findall(rf'<span class="how">{maker}.*?</p>', html, re.DOTALL)
        assert boxes, maker
        assert any("<mark>" in box for box in boxes), maker
    for path in sorted(pages.glob("*.html")):
        page = read(pages, path.name)
        scripts = SCRIPTS if path.name == "index.html" else WITH_DECISIONS
        assert [attributes for tag, attributes in page.tags if tag == "script"] == scripts
        assert not any(
            name.startswith("on") or name == "style" for _, given in page.tags for name in given
        )
        assert {tag for tag, _ in page.tags}.isdisjoint({"iframe", "object", "form", "base"})
        assert {given["src"].split("/")[0] for tag, given in page.tags if tag == "img"} == {
            "images"
        }
    assert (
        "".join(read(pages, path.name).text for path in pages.glob("pairs-*.html")).count(HOSTILE)
        > 100
    )


def test_pages_open_without_complaint(browser, pages):
    for path in sorted(pages.glob("*.html")):
        with open_page(browser, path, viewport={"width": 1280, "height": 900}) as (page, watched):
            assert broken_images(page) == []
            assert watched.complaints == []
            assert watched.from_elsewhere == []
            assert len(watched.requests) > 3
            assert "owned" not in page.title()
            assert not overflows(page)


@pytest.mark.slow
def test_pages_fit_a_phone_even_with_words_that_do_not_end(browser, tmp_path, made):
    hostile = Handmade(dict(made.tables))
    hostile.tables["questions"] = [
        replace(row, question=LONG, answer=LONG) if hasattr(row, "answer") else row
        for row in made.tables["questions"]
    ]
    hostile.tables["described"] = [
        replace(row, text=row.text + LONG, model=f"model-{LONG}") if hasattr(row, "model") else row
        for row in made.tables["described"]
    ]
    hostile.tables["judged"] = [
        replace(
            row,
            why=row.why and LONG,
            text=LONG,
            served=tuple(replace(one, model=LONG) for one in row.served),
        )
        for row in made.of("judged")
    ]
    folder = report(tmp_path, hostile, pairs=10, line=LINE_SERVED)
    for path in sorted(folder.glob("*.html")):
        for size in (PHONE, {"viewport": {"width": 1280, "height": 900}}):
            with open_page(browser, path, **size) as (page, _):
                page.evaluate(
                    "for (const one of document.querySelectorAll('details')) one.open = true"
                )
                assert not overflows(page), (path.name, size)
                for table in page.locator(".scroll").all():
                    assert table.evaluate("(box) => box.scrollWidth <= box.clientWidth"), (
                        "a table is cut"
                    )


@pytest.mark.slow
def test_text_stands_out_from_its_ground(browser, pages):
    script = (Path(__file__).parent / "contrast.js").read_text()
    for scheme in ("light", "dark"):
        for name in ("index.html", "pairs-1.html"):
            with open_page(browser, pages / name, color_scheme=scheme) as (page, _):
                page.evaluate(
                    "for (const one of document.querySelectorAll('details')) one.open = true"
                )
                assert page.evaluate(script) == []
