"""Pages that are served, without the server: preferences about one image, pairs without any,
pictures that are kept."""

import html
import re
import urllib.parse

from pairwright.schemas.decisions import parse_decision
from pairwright.tasks.report import browse_pages
from tests.tasks.report.handmade import HOSTILE, LINE_GIVEN, make_given, make_whole
from tests.tasks.report.pages import Reader, browse


def cards(text):
    """Return what each card says, by the key that is decided about."""
    found = re.findall(r'<article class="pair".*?data-key="(\w+)"(.*?)</article>', text, re.DOTALL)
    return {key: html.unescape(" ".join(re.sub(r"<[^>]+>", "", one).split())) for key, one in found}


def test_each_preference_about_an_image_has_a_card_with_its_own_texts(tmp_path):
    made = make_given()
    rows = {row.key: row for row in made.of("preferences")}
    with browse(tmp_path, made, line=LINE_GIVEN) as pages:
        seen, query = {}, {"size": "5"}
        while query:
            text, status = pages.page(query, "token")
            Reader(text)
            assert status == 200
            assert HOSTILE not in text
            seen |= cards(text)
            link = re.search(r'href="\./\?([^"]*)" rel="next"', text)
            query = dict(urllib.parse.parse_qsl(html.unescape(link[1]))) if link else None
        assert set(seen) == set(rows)
        for key, said in seen.items():
            assert " ".join(rows[key].chosen.split()) in said
        first = next(iter(rows))
        decision = parse_decision(
            f'{{"key": "{first}", "verdict": "reject", "at": "2026-11-21T11:00:00Z"}}'
        )
        apart = pages.decide([decision, decision.model_copy(update={"key": "0" * 32})])
        assert ([one.key for one in apart.known], [one.key for one in apart.unknown]) == (
            [first],
            ["0" * 32],
        )
        assert set(cards(pages.page({"decision": "reject"}, "")[0])) == {first}


def test_pairs_without_a_preference_are_found_by_the_reason(tmp_path):
    made = make_whole(3, 3)
    whole = {row.subject: row.key for row in made.of("preferences")}
    pairs = {row.key for row in made.of("pairs")}
    with browse(tmp_path, made) as pages:
        assert set(cards(pages.page({"size": "50"}, "")[0])) == set(whole.values()) | (
            pairs - whole.keys()
        )
        assert set(cards(pages.page({"kind": "none", "size": "50"}, "")[0])) == pairs - whole.keys()


def test_pictures_of_the_latest_pages_are_kept_and_no_others(tmp_path, monkeypatch):
    monkeypatch.setattr(browse_pages, "KEPT_PAGES", 2)
    with browse(tmp_path, make_given(), line=LINE_GIVEN) as pages:
        shown = []
        for size in ("1", "2", "3"):
            text, _ = pages.page({"size": size}, "")
            shown.append(set(re.findall(r"images/([0-9a-f]+\.\w+)", text)))
            assert all(pages.find_picture(name) for name in shown[-1])
            assert len(list((tmp_path / "scratch").rglob("images/*"))) <= sum(map(len, shown[-2:]))
        assert pages.find_picture("../cards.duckdb") is None
