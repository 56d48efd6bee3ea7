"""Candidates to be judged, the ranges that they are in, and the thresholds that judgements suggest,
by hand."""

import html
import urllib.parse
from contextlib import contextmanager
from datetime import UTC, datetime

from pairwright.schemas.decisions import Decision, latest
from pairwright.tasks.pages.charts import Proportion
from pairwright.tasks.report.search_cards import Search
from pairwright.tasks.report.thresholds import (
    Limits,
    Range,
    _reach,
    compare_annotators,
    read_ranges,
    view_thresholds,
)
from tests.tasks.report.handmade import PROFILE
from tests.tasks.report.handmade_neighbours import MINING, build_neighbours, make_five, pair_key
from tests.tasks.report.pages import Reader, browse_build

JOINT = {
    "AB": (0.625, 0.9375), "AC": (0.75, 0.8125), "BC": (0.5, 0.5625), "BD": (0.1875, 0.3125),
    "CD": (0.125, 0.4375), "DE": (0.3125, 0.4375), "AE": (0.1875, 0.375),
}  # fmt: skip
"""Pairs that both embedders found of one of their images, with their lowest and highest
similarity."""


@contextmanager
def browsing(root):
    images = make_five()
    profile = PROFILE.model_copy(update={"mining": MINING})
    with (
        build_neighbours(root / "dataset", images) as build,
        browse_build(root, build, [], profile=profile) as pages,
    ):
        yield images, pages, pages.cards


def judge(key, verdict, by=""):
    return Decision(key=key, verdict=verdict, by=by, at=datetime.now(UTC))


def test_candidates_are_cards_only_where_they_are_to_be_judged(tmp_path):
    with browsing(tmp_path) as (images, _, cards):
        cards.set_decisions(latest([]))
        keys = {letters: pair_key(images, letters) for letters in JOINT}
        assert cards.search(Search()).keys == [keys["AB"]]
        assert cards.count_cards() == 1
        assert set(cards.search(Search(judge=True)).keys) == set(keys.values())
        unpaired = cards.unpaired(list(keys.values()))
        assert set(unpaired) == set(keys.values()) - {keys["AB"]}
        for letters, (low, high) in JOINT.items():
            row = unpaired.get(keys[letters])
            assert row is None or (min(row.similarities), max(row.similarities)) == (low, high)
        found = cards.search(Search(judge=True, low_least=0.6, low_most=0.8)).keys
        assert set(found) == {keys["AB"], keys["AC"]}
        assert cards.search(Search(judge=True, high_least=0.5, high_most=0.6)).keys == [keys["BC"]]


def test_judgements_are_stored_apart_from_decisions_and_shown(tmp_path):
    with browsing(tmp_path) as (images, pages, _):
        first, second = pair_key(images, "AB"), pair_key(images, "DE")
        given = [
            judge(first, "reject"),
            judge(first, "fits"),
            judge(second, "unrelated"),
            judge(second, "accept"),
        ]
        apart = pages.decide([*given, judge("0" * 32, "fits")])
        assert [one.verdict for one in apart.known] == ["reject", "fits", "unrelated"]
        assert len(apart.unknown) == 2, (
            "of a candidate, which is no row, only its likeness is judged"
        )
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
        pages.decide(
            [judge(pair_key(images, letters), verdict) for letters, verdict in words.items()]
        )
        shown = Reader(pages.thresholds({}, "token")[0]).text
        # Going down, DE is the first range of unrelated pairs, after BC's; going up, AB that of
        # copies, after AC's.
        assert "Suggested: 0.50 to 0.82" in " ".join(shown.split())
        assert "--set mining.min_similarity=0.5 " in shown
        assert "next" not in " ".join(shown.split()).split("Suggested")[1].split("Judgements")[0]
        text, _ = pages.thresholds({"unrelated": "20"}, "token")
        cell = next(
            given["href"]
            for tag, given in Reader(text).tags
            if "min_similarity 0.30" in given.get("title", "")
        )
        picked = dict(urllib.parse.parse_qsl(cell.partition("?")[2].partition("#")[0]))
        shown = Reader(pages.thresholds(picked, "token")[0]).text
        assert "--set mining.min_similarity=0.3 --set mining.max_similarity=0.82" in shown
        assert 'value="20"' in pages.thresholds(picked, "token")[0]
        assert pages.thresholds({"unrelated": "many"}, "token")[1] == 400
        assert html.escape("hand <b>") in text


def test_counts_are_of_all_candidates(tmp_path):
    with browsing(tmp_path) as (_, pages, cards):
        cards.set_decisions(latest([]))
        lows = read_ranges(cards.database, "low", "unrelated")
        assert sum(one.candidates for one in lows) == 12, (
            "each is found from one or from both of its images"
        )
        assert sum(one.shown for one in lows) == 7
        view = view_thresholds(cards.database, pages.subject.profile.mining, Limits())
        assert (view.judged, view.suggested) == (0, None)
        # The middle of six ranges of lows (.74 .62 .50 .30 .18 .12), and of six of highs, from
        # below.
        assert [(side, one.low) for side, one in view.owed] == [("low", 0.3), ("high", 0.56)]


def ranges(*judged, shown=40):
    """Return ranges from 0.9 down, each with how many were judged bad, of how many."""
    return [
        Range(
            low=0.9 - n / 50, high=0.92 - n / 50, candidates=90, shown=shown, bad=Proportion(*one)
        )
        for n, one in enumerate(judged)
    ]


def test_a_range_is_taken_where_its_interval_ends_within_the_limit():
    # Wilson, z = 1.645: 0 of n reaches z^2 / (n + z^2), 9.8 % with 25 and 10.1 % with 24.
    found = ranges((0, 25), (0, 24), (3, 3), (0, 40))
    assert [round(one.interval[1], 3) for one in found[:2]] == [0.098, 0.101]
    assert _reach(found, 10) == (found[0], found[1])
    found = ranges((0, 0), (0, 25), (0, 0), (0, 0), (0, 0), (3, 3))
    assert _reach(found, 10) == (found[1], found[3]), (
        "the middle of what is open; what is inside is no worse"
    )
    found = ranges((2, 40), (30, 40))
    assert _reach(found, 10) == (None, None), "nothing is left to be judged"
    (whole,) = (one._replace(whole=True) for one in ranges((1, 20), shown=20))
    assert whole.interval == (0.05, 0.05)
    assert _reach([whole], 5) == (whole, None)
    slip, sound = (one._replace(whole=True) for one in ranges((1, 5), (0, 5), shown=5))
    assert _reach([slip, sound], 10) == (sound, None), (
        "one slip of five, 4.6 % at the least, does not end the band"
    )


def test_judgements_are_kept_by_annotator_and_compared(tmp_path):
    with browsing(tmp_path) as (images, pages, _):
        keys = [pair_key(images, letters) for letters in ("AB", "AC", "BC", "DE")]
        given = {"anna": "fits fits unrelated fits", "<b>ben": "fits unrelated unrelated unrelated"}
        for name, words in given.items():
            pages.annotator = name
            pages.page({}, "")  # looks at what is decided
            pages.decide(
                [
                    judge(key, word, by="nobody")
                    for key, word in zip(keys, words.split(), strict=True)
                ]
            )
        assert f'data-pair="{keys[1]}" data-judged="unrelated"' in pages.page({"judge": "1"}, "")[0]
        pages.annotator, pages._known = "anna", None
        assert f'data-pair="{keys[1]}" data-judged="fits"' in pages.page({"judge": "1"}, "")[0]
        text, _ = pages.page({"judge": "1", "unjudged": "1"}, "")
        assert text.count("data-judged=") == 7 - 4
        text, _ = pages.thresholds({}, "")
        # Alike 2 of 4; by chance (3 * 1 + 1 * 3) / 16 = 0.375; kappa = (0.5 - 0.375) / 0.625 = 0.2.
        shown = " ".join(Reader(text).text.split())
        assert "<b>ben and anna both judged 4 pairs, 50 % alike; Cohen's kappa 0.20." in shown
        assert "<b>ben" not in text.replace("<b>&lt;b&gt;ben", "")
        pages.decide([judge(keys[1], "unjudged")])
        pages.page({}, "")
        assert pages._decisions.judged[keys[1]] == "unrelated", "what another one said stays"


def test_one_verdict_throughout_has_no_kappa():
    (one,) = compare_annotators({"a": {"x": "fits"}, "b": {"x": "fits", "y": "fits"}, "c": {}})
    assert (one.same.value, one.kappa) == (1.0, None)
