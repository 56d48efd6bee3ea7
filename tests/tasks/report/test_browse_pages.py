"""Pages that are served, without the server: preferences about one image, pairs without any,
pictures that are kept."""

import html
import re
import urllib.parse

import pytest

from pairwright.schemas.decisions import parse_decision
from pairwright.tasks.report import browse_pages
from tests.tasks.report.handmade import HOSTILE, LINE_GIVEN
from tests.tasks.report.pages import Reader, browse

CARD = re.compile(r'<article class="pair".*?data-key="(\w+)"(.*?)</article>', re.DOTALL)


def cards(text):
    """Return the words of each card, by the key that is decided about."""
    return {
        key: html.unescape(" ".join(re.sub(r"<[^>]+>", "", card).split()))
        for key, card in CARD.findall(text)
    }


def turn_pages(pages, query):
    """Yield the texts of a search's pages."""
    while query:
        text, status = pages.page(query, "token")
        assert status == 200
        yield text
        link = re.search(r'href="\./\?([^"]*)" rel="next"', text)
        query = dict(urllib.parse.parse_qsl(html.unescape(link[1]))) if link else None


@pytest.fixture(scope="module")
def pages(tmp_path_factory, given):
    with browse(tmp_path_factory.mktemp("given"), given, line=LINE_GIVEN) as pages:
        yield pages


def test_each_preference_about_an_image_has_a_card_with_its_own_texts(pages, given):
    rows = {row.key: row for row in given.of("preferences")}
    shown = {}
    for text in turn_pages(pages, {"size": "5"}):
        Reader(text)
        assert HOSTILE not in text
        shown |= cards(text)
    assert set(shown) == set(rows)
    assert all(" ".join(rows[key].chosen.split()) in words for key, words in shown.items())


def test_a_decision_about_a_card_is_kept_and_about_nothing_is_not(pages, given):
    key, unknown = given.of("preferences")[0].key, "0" * 32
    at = "2026-11-21T11:00:00Z"
    decision = parse_decision(f'{{"key": "{key}", "verdict": "reject", "at": "{at}"}}')
    apart = pages.decide([decision, decision.model_copy(update={"key": unknown})])
    assert [row.key for row in apart.known] == [key]
    assert [row.key for row in apart.unknown] == [unknown]
    assert set(cards(pages.page({"decision": "reject"}, "")[0])) == {key}


def test_pairs_without_a_preference_are_found_by_the_reason(tmp_path, small):
    preferences = {row.subject: row.key for row in small.of("preferences")}
    without = {row.key for row in small.of("pairs")} - preferences.keys()
    with browse(tmp_path, small) as pages:
        shown = cards(pages.page({"size": "50"}, "")[0])
        assert set(shown) == set(preferences.values()) | without
        assert set(cards(pages.page({"kind": "none", "size": "50"}, "")[0])) == without


def test_pictures_of_the_latest_pages_are_kept_and_no_others(tmp_path, monkeypatch, given):
    monkeypatch.setattr(browse_pages, "KEPT_PAGES", 2)
    with browse(tmp_path, given, line=LINE_GIVEN) as pages:
        shown = []
        for size in ("1", "2", "3"):
            text, _ = pages.page({"size": size}, "")
            shown.append(set(re.findall(r"images/([0-9a-f]+\.\w+)", text)))
            assert all(pages.find_picture(name) for name in shown[-1])
            assert len(list((tmp_path / "scratch").rglob("images/*"))) <= sum(map(len, shown[-2:]))
        assert pages.find_picture("../cards.duckdb") is None
