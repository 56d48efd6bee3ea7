"""Candidates to be judged, the ranges that they are in, and the thresholds that judgements suggest, by hand."""

import html
from contextlib import contextmanager
from datetime import UTC, datetime

from pairwright.schemas.decisions import Decision, latest
from pairwright.tasks.pages.charts import Proportion
from pairwright.tasks.report.browse_pages import BrowsePages
from pairwright.tasks.report.card_table import make_cards
from pairwright.tasks.report.search_cards import CardSearch, Search
from pairwright.tasks.report.tables import Tables, open_database
from pairwright.tasks.report.thresholds import Limits, Range, read_ranges, view_thresholds
from pairwright.tasks.report.write_report import Subject
from tests.tasks.report.handmade import PROFILE
from tests.tasks.report.handmade_neighbours import MINING, build_neighbours, make_five, pair_key
from tests.tasks.report.pages import Reader

JOINT = {
    "AB": (0.625, 0.9375), "AC": (0.75, 0.8125), "BC": (0.5, 0.5625), "BD": (0.1875, 0.3125),
    "CD": (0.125, 0.4375), "DE": (0.3125, 0.4375), "AE": (0.1875, 0.375),
}  # fmt: skip
"""Pairs that both encoders found of one of their images, with their lowest and highest similarity."""


@contextmanager
def browsing(root):
    images = make_five()
    with build_neighbours(root / "dataset", images) as build:
        tables = Tables(build)
        (root / "scratch").mkdir()
        file = make_cards(tables, root / "cache", root / "scratch", watch=lambda _: None)
        profile = PROFILE.model_copy(update={"mining": MINING})
        subject = Subject(name="five <b>", version="version 1", made="", counts=[], profile=profile, pairs=0)
        with open_database(str(file.path), root / "scratch", read_only=True) as database:
            pages = BrowsePages(
                tables=tables, file=file, cards=CardSearch(database), subject=subject, scratch=root / "scratch"
            )
            yield images, pages, CardSearch(database)


def judge(key, verdict):
    return Decision(key=key, verdict=verdict, at=datetime.now(UTC))


def test_candidates_are_cards_only_where_they_are_to_be_judged(tmp_path):
    with browsing(tmp_path) as (images, _, cards):
        cards.set_decisions(latest([]))
        keys = {letters: pair_key(images, letters) for letters in JOINT}
        assert cards.find(Search()).keys == [keys["AB"]]
        assert cards.count() == 1
        assert set(cards.find(Search(judge=True)).keys) == set(keys.values())
        unpaired = cards.unpaired(list(keys.values()))
        assert set(unpaired) == set(keys.values()) - {keys["AB"]}
        for letters, (low, high) in JOINT.items():
            row = unpaired.get(keys[letters])
            assert row is None or (min(row.similarities), max(row.similarities)) == (low, high)
        found = cards.find(Search(judge=True, low_least=0.6, low_most=0.8)).keys
        assert set(found) == {keys["AB"], keys["AC"]}
        assert cards.find(Search(judge=True, high_least=0.5, high_most=0.6)).keys == [keys["BC"]]


def test_judgements_are_stored_apart_from_decisions_and_shown(tmp_path):
    with browsing(tmp_path) as (images, pages, _):
        first, second = pair_key(images, "AB"), pair_key(images, "DE")
        given = [judge(first, "reject"), judge(first, "fits"), judge(second, "unrelated"), judge(second, "accept")]
        apart = pages.decide([*given, judge("0" * 32, "fits")])
        assert [one.verdict for one in apart.known] == ["reject", "fits", "unrelated"]
        assert len(apart.unknown) == 2, "of a candidate, which is no row, only its likeness is judged"
        text, status = pages.page({"judge": "1"}, "token")
        assert (status, text.count("data-judged=")) == (200, 7)
        assert f'data-pair="{second}" data-judged="unrelated"' in text
        Reader(text)
        pages.decide([judge(second, "unjudged")])
        assert f'data-pair="{second}" data-judged=""' in pages.page({"judge": "1"}, "token")[0]


def test_the_page_counts_candidates_and_suggests_a_band(tmp_path):
    with browsing(tmp_path) as (images, pages, _):
        text, status = pages.thresholds({}, "token")
        assert status == 200
        assert "No thresholds suggested yet" in text
        words = {"AC": "fits", "AB": "near-identical", "BC": "fits", "DE": "unrelated"}
        pages.decide([judge(pair_key(images, letters), verdict) for letters, verdict in words.items()])
        shown = Reader(pages.thresholds({}, "token")[0]).text
        # Going down, DE is the first range of unrelated pairs, after BC's; going up, AB that of copies, after AC's.
        assert "Suggested: 0.50 to 0.82" in " ".join(shown.split())
        assert "--set mining.min_similarity=0.50" in shown
        assert pages.thresholds({"unrelated": "many"}, "token")[1] == 400
        assert html.escape("five <b>") in text


def test_counts_are_of_all_candidates(tmp_path):
    with browsing(tmp_path) as (_, pages, cards):
        cards.set_decisions(latest([]))
        lows = read_ranges(cards.database, "low", "unrelated")
        assert sum(one.candidates for one in lows) == 12, "each is found from one or from both of its images"
        assert sum(one.shown for one in lows) == 7
        view = view_thresholds(cards.database, pages.subject.profile.mining, Limits())
        assert (view.judged, view.suggested) == (0, None)
        assert [chart.now.label for chart in view.charts] == ["min 0.5", "max 0.9"]


def test_enough_of_a_range_must_be_judged():
    def judged(of, *, shown):
        return Range(low=0.5, high=0.52, candidates=20, shown=shown, bad=Proportion(hits=0, of=of)).counts

    assert [judged(10, shown=10), judged(5, shown=10), judged(2, shown=2)] == [True, False, True]
