"""Candidates to be judged, the ranges that they are in, and the thresholds that judgements suggest,
by hand."""

import html
import urllib.parse
from datetime import UTC, datetime

import pytest

from pairwright.schemas.decisions import Decision, latest_decisions
from pairwright.tasks.pages.charts import Proportion
from pairwright.tasks.report import thresholds
from pairwright.tasks.report.search_cards import Search
from tests.tasks.report.handmade import PROFILE
from tests.tasks.report.handmade_neighbours import MINING, build_neighbours, make_five, pair_key
from tests.tasks.report.pages import Reader, browse_build

JOINT = {
    "AB": (0.625, 0.9375), "AC": (0.75, 0.8125), "BC": (0.5, 0.5625), "BD": (0.1875, 0.3125),
    "CD": (0.125, 0.4375), "DE": (0.3125, 0.4375), "AE": (0.1875, 0.375),
}  # fmt: skip
"""Pairs that both embedders found of one of their images, with their lowest and highest
similarity."""
IMAGES = make_five()
KEYS = {letters: pair_key(IMAGES, letters) for letters in JOINT}


@pytest.fixture
def pages(tmp_path):
    profile = PROFILE.model_copy(update={"mining": MINING})
    with (
        build_neighbours(tmp_path / "dataset", IMAGES) as build,
        browse_build(tmp_path, build, [], profile=profile) as pages,
    ):
        yield pages


def judge(letters, verdict, by=""):
    key = KEYS.get(letters, letters)
    return Decision(key=key, verdict=verdict, by=by, at=datetime.now(UTC))


def test_candidates_are_cards_only_where_they_are_to_be_judged(pages):
    cards = pages.cards
    cards.set_decisions(latest_decisions([]))
    assert cards.search(Search()).keys == [KEYS["AB"]]
    assert cards.count_cards() == 1
    assert set(cards.search(Search(judge=True)).keys) == set(KEYS.values())
    between = cards.search(Search(judge=True, low_least=0.6, low_most=0.8)).keys
    assert set(between) == {KEYS["AB"], KEYS["AC"]}
    between = cards.search(Search(judge=True, high_least=0.5, high_most=0.6)).keys
    assert between == [KEYS["BC"]]


def test_pairs_of_neighbours_have_their_lowest_and_highest_similarity(pages):
    unpaired = pages.cards.unpaired(list(KEYS.values()))
    ends = {
        letters: (min(unpaired[key].similarities), max(unpaired[key].similarities))
        for letters, key in KEYS.items()
        if letters != "AB"
    }
    assert {"AB": JOINT["AB"], **ends} == JOINT
    assert KEYS["AB"] not in unpaired


def test_judgements_are_stored_apart_from_decisions_and_shown(pages):
    decisions = [
        judge("AB", "reject"),
        judge("AB", "fits"),
        judge("DE", "unrelated"),
        judge("DE", "accept"),  # a candidate is no row: only its likeness is judged
        judge("0" * 32, "fits"),
    ]
    apart = pages.decide(decisions)
    assert [row.verdict for row in apart.known] == ["reject", "fits", "unrelated"]
    assert len(apart.unknown) == 2
    text, status = pages.page({"judge": "1"}, "token")
    assert (status, text.count("data-judged=")) == (200, 7)
    assert f'data-pair="{KEYS["DE"]}" data-judged="unrelated"' in text
    Reader(text)
    pages.decide([judge("DE", "unjudged")])
    assert f'data-pair="{KEYS["DE"]}" data-judged=""' in pages.page({"judge": "1"}, "token")[0]


def test_the_page_counts_candidates_and_suggests_a_band(pages):
    text, status = pages.thresholds({}, "token")
    assert status == 200
    assert "No thresholds suggested yet" in text
    verdicts = {"AC": "fits", "AB": "near-identical", "BC": "fits", "DE": "unrelated"}
    pages.decide([judge(letters, verdict) for letters, verdict in verdicts.items()])
    # Going down, DE is the first range of unrelated pairs, after BC's; going up, AB that of copies,
    # after AC's.
    words = Reader(pages.thresholds({}, "token")[0]).words
    assert "Suggested: 0.50 to 0.82" in words
    assert "--set mining.min_similarity=0.5 " in words
    assert "next" not in words.split("Suggested")[1].split("Judgements")[0]
    text, _ = pages.thresholds({"unrelated": "20"}, "token")
    assert html.escape("hand <b>") in text
    (href,) = [
        attributes["href"]
        for attributes in Reader(text).attributes("a")
        if "min_similarity 0.30" in attributes.get("title", "")
    ]
    query = dict(urllib.parse.parse_qsl(href.partition("?")[2].partition("#")[0]))
    text, _ = pages.thresholds(query, "token")
    options = "--set mining.min_similarity=0.3 --set mining.max_similarity=0.82"
    assert options in Reader(text).text
    assert 'value="20"' in text
    assert pages.thresholds({"unrelated": "many"}, "token")[1] == 400


def test_counts_are_of_all_candidates(pages):
    database = pages.cards.database
    pages.cards.set_decisions(latest_decisions([]))
    lows = thresholds.read_ranges(database, "low", "unrelated")
    assert sum(row.candidates for row in lows) == 12, "of each side once"
    assert sum(row.shown for row in lows) == 7
    view = thresholds.view_thresholds(database, pages.subject.profile.mining, thresholds.Limits())
    assert (view.judged, view.suggested) == (0, None)
    # The middle of six ranges of lows (.74 .62 .50 .30 .18 .12), and of six of highs, from below.
    assert [(side, row.low) for side, row in view.next_ranges] == [("low", 0.3), ("high", 0.56)]


def ranges(*judged, shown=40, whole=False):
    """Return ranges from 0.9 down, each with how many were judged bad, of how many."""
    counts = {"candidates": 90, "shown": shown, "whole": whole}
    return [
        thresholds.Range(low=0.9 - n / 50, high=0.92 - n / 50, bad=Proportion(*bad), **counts)
        for n, bad in enumerate(judged)
    ]


def test_the_interval_of_a_range_is_wilson_s():
    """z = 1.645: 0 of n reaches z^2 / (n + z^2), 9.8 % with 25 and 10.1 % with 24."""
    highs = [round(row.interval[1], 3) for row in ranges((0, 25), (0, 24))]
    assert highs == [0.098, 0.101]
    (whole,) = ranges((1, 20), shown=20, whole=True)
    assert whole.interval == (0.05, 0.05)


@pytest.mark.parametrize(
    ("judged", "limit", "reached", "unfinished"),
    [
        pytest.param(ranges((0, 25), (0, 24), (3, 3), (0, 40)), 10, 0, 1, id="within the limit"),
        pytest.param(
            ranges((0, 0), (0, 25), (0, 0), (0, 0), (0, 0), (3, 3)),
            10,
            1,
            3,
            id="open ones between",
        ),
        pytest.param(ranges((2, 40), (30, 40)), 10, None, None, id="nothing left to be judged"),
        pytest.param(ranges((1, 20), shown=20, whole=True), 5, 0, None, id="all were judged"),
        # 4.6 % at the least
        pytest.param(
            ranges((1, 5), (0, 5), shown=5, whole=True), 10, 1, None, id="one slip of five"
        ),
    ],
)
def test_how_far_judgements_reach(judged, limit, reached, unfinished):
    """``unfinished``: the middle of what is open is to be judged next."""
    numbered = {None: None, **dict(enumerate(judged))}
    assert thresholds._reach(judged, limit) == (numbered[reached], numbered[unfinished])


def test_judgements_are_kept_by_annotator_and_compared(pages):
    letters = ("AB", "AC", "BC", "DE")
    verdicts = {"anna": "fits fits unrelated fits", "<b>ben": "fits unrelated unrelated unrelated"}
    for name, words in verdicts.items():
        pages.annotator = name
        pages.page({}, "")  # looks at what is decided
        rows = zip(letters, words.split(), strict=True)
        pages.decide([judge(pair, verdict, by="nobody") for pair, verdict in rows])
    card = f'data-pair="{KEYS["AC"]}" data-judged='
    assert f'{card}"unrelated"' in pages.page({"judge": "1"}, "")[0]
    pages.annotator, pages._known = "anna", None
    assert f'{card}"fits"' in pages.page({"judge": "1"}, "")[0]
    text, _ = pages.page({"judge": "1", "unjudged": "1"}, "")
    assert text.count("data-judged=") == 7 - 4
    text, _ = pages.thresholds({}, "")
    # Alike 2 of 4; by chance (3 * 1 + 1 * 3) / 16 = 0.375; kappa = (0.5 - 0.375) / 0.625 = 0.2.
    phrase = "<b>ben and anna both judged 4 pairs, 50 % alike; Cohen's kappa 0.20."
    assert phrase in Reader(text).words
    assert "<b>ben" not in text.replace("<b>&lt;b&gt;ben", "")
    pages.decide([judge("AC", "unjudged")])
    pages.page({}, "")
    assert pages._decisions.judged[KEYS["AC"]] == "unrelated", "the other one's stays"


def test_one_verdict_throughout_has_no_kappa():
    (both,) = thresholds.compare_annotators(
        {"a": {"x": "fits"}, "b": {"x": "fits", "y": "fits"}, "c": {}}
    )
    assert (both.same.value, both.kappa) == (1.0, None)
