"""Measure what was written: repetition, variety, verbs and refusals of differences, axes of comparisons, checks.

Reads the texts and narrow columns of ``DifferenceRow``, ``PreferenceRow``, ``ComparisonRow`` and ``CheckRow``; DuckDB
counts. The variety of texts (ours) is that of a sample, since more texts repeat more.

Repeated, after paper 001, Table 14: of descriptions that are equal word for word (white space aside; case and full
stops count, of which the paper says nothing) all but the first. The paper generates once and filters; here a refused
answer is asked for again, so that what compares with it is the share of first answers that were refused. Paper 003
counts axes in its Figure 3 (c); of its mean words, those of statements count here, not headings and labels.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, get_args

from pairwright.prompts import difference_verbs
from pairwright.schemas.checks import AGAINST, SEEN_IN_SAME
from pairwright.schemas.phrases import NUMBERS, SPOKEN, SURFACE, bare
from pairwright.tasks.pages.charts import Chart, Tally, draw_histogram
from pairwright.tasks.report.tables import CHECKS, WORDS, Tables
from pairwright.tasks.scenes.vocabulary import COLOURS, DIRECTIONS, HEIGHTS, PLACES, SHAPES, TEXTS, TINTS
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.texts.comparisons import AXES
from pairwright.tasks.texts.differences import Reason, inflections
from pairwright.tasks.texts.words import split_by_rules

REFUSALS = get_args(Reason)
"""Why a validator refuses an answer; pairs dropped for other reasons gave none."""
MOST_SHOWN = 5
PLAIN = "array_to_string(regexp_extract_all(coalesce(text, ''), '[^\\s]+'), ' ')"
"""A text by its words, as SQL."""
CHANGED = "NOT coalesce(no_change, false)"
MOST_VARIED = 108
"""Texts whose variety is counted."""
UNLABELLED = "no axis named"
MEANINGS = {
    "swapped": "The pair in the other order must give the description the other way round.",
    "same": "One of the images, shown twice, must give no difference.",
    "grounded": "Each half must fit its own image better than the other one.",
    "regions": "What it names must lie where the two images, laid over each other, differ.",
    "judged": "A model rates the description: 0 is wrong, 5 is right in every word.",
}
UNITS = {
    "swapped": "likeness, crosswise less straight",
    "grounded": "cosine difference",
    "regions": "share of what is named and of what changed",
    "judged": "rating",
}


class Repetition(NamedTuple):
    """Sentences counted as in paper 001's Table 14, or parts of texts counted alike."""

    total: int
    unique: int

    @property
    def repeated(self) -> int:
        """Return how many repeat another one."""
        return self.total - self.unique

    @property
    def share(self) -> float:
        """Return the repetition ratio."""
        return self.repeated / max(self.total, 1)


PAPER = {
    "InstructPix2Pix": Repetition(311_499, 297_485),
    "CC3M": Repetition(449_194, 440_204),
    "Spot-the-Diff": Repetition(7_004, 6_439),
    "all three": Repetition(767_697, 744_128),
}
"""Paper 001, Table 14, by the images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """What is measured of the descriptions of differences."""

    sentences: Repetition
    changed: Repetition
    """Of those that name a change."""
    most: Sequence[tuple[str, int]]
    """The sentences that occur most often, and how often, where more than once."""
    verbs: dict[str, int]
    """Halves by the verb of the paper's list that opens them, most frequent first."""
    again: int
    """Descriptions whose first answer was refused, and a later one taken."""
    refused: dict[str, int]
    """Pairs of which every answer was refused, by the reason of the last."""

    @property
    def listed(self) -> int:
        """Return how many verbs the list has."""
        return len(difference_verbs())

    @property
    def beside(self) -> list[tuple[str, Repetition]]:
        """Return the repetition of these descriptions and of the paper's."""
        return [("this dataset", self.sentences), *((f"paper, {name}", found) for name, found in PAPER.items())]

    @property
    def lost(self) -> int:
        """Return how many pairs have no description because every answer was refused."""
        return sum(self.refused.values())

    @property
    def asked(self) -> int:
        """Return how many first answers there were."""
        return self.sentences.total + self.lost

    @property
    def share_refused(self) -> float:
        """Return the share of first answers that were refused."""
        return (self.again + self.lost) / max(self.asked, 1)


def measure_differences(tables: Tables, counts: Sequence[Counts]) -> Differences | None:
    """Measure all descriptions that were written, also those that a check sorted out; ``None`` if there are none."""
    reasons = next((one.reasons for one in counts if one.stage == "described"), {})
    refused = {reason: number for reason, number in reasons.items() if reason in REFUSALS}
    some = f"count(*) FILTER ({{0}}), count(DISTINCT hash({PLAIN})) FILTER ({{0}})"  # of 64 bits: none meet by chance
    columns = f"{some.format('true')}, {some.format(CHANGED)}, count(*) FILTER (attempts > 1)"
    found = tables.ask(f"SELECT {columns} FROM described", {"described": ["text", "no_change", "attempts"]})
    if not found or not (found[0][0] or refused):
        return None
    ((total, unique, changed, unique_changed, again),) = found
    return Differences(
        sentences=Repetition(total, unique),
        changed=Repetition(changed, unique_changed),
        most=tables.ask(
            f"SELECT any_value({PLAIN}), count(*) FROM described GROUP BY hash({PLAIN}) HAVING count(*) > 1"
            f" ORDER BY 2 DESC, 1 LIMIT {MOST_SHOWN}",
            {"described": ["text"]},
        ),
        verbs=group_verbs(tables.count("SELECT unnest(verbs) AS value FROM described", {"described": ["verbs"]})),
        again=again,
        refused=refused,
    )


def group_verbs(found: Mapping[str, int]) -> dict[str, int]:
    """Count verbs under the form that the paper's list has, most frequent first; one not listed under its own."""
    listed = {form: verb for verb in difference_verbs() for form in inflections(verb)}
    counts: Counter[str] = Counter()
    for verb, number in found.items():
        counts[listed.get(verb, verb)] += number
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


@dataclass(frozen=True, slots=True, kw_only=True)
class Variety:
    """How varied some different texts are."""

    texts: int
    counted: Mapping[str, Repetition]
    """Words, 2-grams (pairs of neighbouring words of a text) and sentence skeletons."""
    commonest: tuple[str, int]
    """The skeleton that most sentences have, and how many."""


def measure_variety(tables: Tables) -> Variety | None:
    """Measure some chosen texts, the same each time; without preferences, descriptions; ``None``: there are none."""
    for name, column in (("preferences", "chosen"), ("differences", "text")):
        query = f"""SELECT text FROM (SELECT DISTINCT {column}::VARCHAR AS text FROM {name}) WHERE trim(text) != ''
            ORDER BY md5(text) LIMIT {MOST_VARIED}"""
        if texts := [text for (text,) in tables.ask(query, {name: [column]})]:
            return count_variety(texts)
    return None


def count_variety(texts: Sequence[str]) -> Variety:
    """Count the different words, 2-grams and sentence skeletons of texts."""
    words = [re.findall(r"[\w'-]+", text.lower()) for text in texts]
    skeletons = [strip_sentence(sentence) for text in texts for sentence in split_by_rules(text)]
    parts: Mapping[str, list[Any]] = {
        "words": [word for own in words for word in own],
        "2-grams": [both for own in words for both in pairwise(own)],
        "sentence skeletons": skeletons,
    }
    counted = {name: Repetition(len(found), len(set(found))) for name, found in parts.items()}
    commonest = min(Counter(skeletons).items(), key=lambda one: (-one[1], one[0]))
    return Variety(texts=len(texts), counted=counted, commonest=commonest)


def strip_sentence(sentence: str) -> str:
    """Return the skeleton of a sentence: "…" stands for what it names, be it several things or their attributes."""
    bare_of_number = sentence.lstrip("0123456789. ")  # of an item of a list
    return re.sub(r"…(?:(?:,|,? and|,? or)? …)+", "…", _scene_words().sub("…", bare_of_number).lower())


@cache
def _scene_words() -> re.Pattern[str]:
    """Match the words of rendered scenes and the verbs of paper 001's list, with what leads to them ("on the")."""
    words = ["object", *SHAPES, *COLOURS, *TINTS, *DIRECTIONS, *HEIGHTS, *NUMBERS, *SPOKEN.values(), *map(bare, PLACES)]
    words += [word for kind in SHAPES.values() for word in (*kind.materials, *kind.poses)]
    words += [word for named in SURFACE.values() for word in named.values()]
    words += [f"reading '{text}'" for text in TEXTS]
    named = "|".join(sorted(map(re.escape, [*words, *difference_verbs()]), key=len, reverse=True))
    place = r"(?:(?:in|on|on top of) )?(?:(?:an?|the) )?"
    return re.compile(rf"(?<!\w){place}(?:(?:{named})(?:e?s)?|\d+)(?!\w)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summaries:
    """What is measured of the comparisons."""

    rows: int
    common_words: float
    """Mean words of the commonalities of one summary."""
    difference_words: float
    axes: dict[str, int]
    """Summaries that speak of each axis, and those with a statement that names none, where there are any."""
    per_summary: float
    """Mean number of different axes of a summary."""
    asked: int
    """Conversations with the retrieval question."""
    answers: dict[str, int]
    """Their right answers ("A" is the first image)."""


def measure_summaries(tables: Tables) -> Summaries | None:
    """Measure all comparisons; ``None`` if there are none."""
    sums = [WORDS.format(f"array_to_string({side}, ' ')") for side in ("commonalities", "differences")]
    query = f"SELECT count(*), {', '.join(f'avg({one})' for one in sums)} FROM comparisons"
    found = tables.ask(query, {"comparisons": ["commonalities", "differences"]})
    if not found or not found[0][0]:
        return None
    ((rows, common, different),) = found
    covered = count_axes(tables)
    last = "SELECT conversation[4].text AS value FROM comparisons WHERE len(conversation) > 3"
    answers = tables.count(last, {"comparisons": ["conversation"]})
    return Summaries(
        rows=rows,
        common_words=common,
        difference_words=different,
        axes={axis: covered.get(axis, 0) for axis in (*AXES, *({UNLABELLED} & covered.keys()))},
        per_summary=sum(covered.get(axis, 0) for axis in AXES) / rows,
        asked=sum(answers.values()),
        answers=dict(sorted(answers.items())),
    )


def count_axes(tables: Tables) -> dict[str, int]:
    """Count the rows whose statements name each axis ("counts, locations"), and those with one that names none."""
    known = f"[{', '.join(repr(axis) for axis in AXES)}]"
    named = f"list_intersect(string_split(label, ', '), {known})"
    labels = f"SELECT number, {named} AS named FROM (SELECT number, unnest(axes) AS label FROM comparisons)"
    each = f"SELECT DISTINCT number, unnest(CASE WHEN len(named) = 0 THEN ['{UNLABELLED}'] ELSE named END) AS value"
    return tables.count(f"{each} FROM ({labels})", {"comparisons": ["axes"]})


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How descriptions did in one check."""

    name: str
    meaning: str
    rows: int
    """Descriptions of which it could be made."""
    passed: int
    why: dict[str, int]
    """Why the others did not, the most frequent reason first."""
    off: dict[str, int]
    """Why it could not be made of further ones."""
    scores: Chart | None
    """Of those that passed and those that were found wrong."""

    @property
    def share(self) -> float:
        """Return the share that passed."""
        return self.passed / max(self.rows, 1)

    @property
    def against(self) -> int:
        """Return how many were found wrong; of the others that did not pass, nothing was found out."""
        return sum(number for why, number in self.why.items() if why in AGAINST)


def says_something(why: str) -> bool:
    """Say whether a check that failed found something out, so that its score means something."""
    return why in AGAINST or why == SEEN_IN_SAME


def measure_checks(tables: Tables) -> list[Check]:
    """Return every check that was made, in the order in which descriptions go through them."""
    return [check for name in CHECKS for check in _measure(tables, name)]


def _measure(tables: Tables, name: str) -> Iterator[Check]:
    columns = {name: ["check", "passed", "score", "why"]}
    made = f"""(SELECT "check" AS name, coalesce(passed, false) AND coalesce(why, '') = '' AS good,
        coalesce(passed, false) AND coalesce(why, '') != '' AS is_off, score, why FROM {name})"""
    query = f"""SELECT name, count(*) FILTER (NOT is_off), count(*) FILTER (good) FROM {made}
        GROUP BY 1 ORDER BY name != 'swapped', name"""
    for check, rows, passed in tables.ask(query, columns):
        reason = f"""SELECT coalesce(nullif(why, ''), 'no reason given') AS value FROM {made}
            WHERE name = ? AND NOT good AND is_off = ?"""
        why, off = (tables.count(reason, columns, [check, is_off]) for is_off in (False, True))
        score = f"""SELECT 0 AS place, CASE WHEN good THEN 'passed' ELSE 'failed' END AS name, score AS value
            FROM {made} WHERE name = ? AND (good OR list_contains(?, why))"""
        scores = tables.tally(score, columns, [check, [one for one in why if says_something(one)]])
        yield Check(
            name=check,
            meaning=MEANINGS.get(check, ""),
            rows=rows,
            passed=passed,
            why=why,
            off=off,
            scores=_draw_scores(check, scores),
        )


def _draw_scores(check: str, found: Mapping[str, Tally]) -> Chart | None:
    """Draw the scores of what passed and of what was found wrong; nothing where all have one score."""
    values = {value for own in found.values() for value in own.values.tolist()}
    if len(values) < 2:
        return None
    tones = {"passed": "chosen", "failed": "rejected"}
    series = [(name, tone, found[name]) for name, tone in tones.items() if name in found]
    whole = all(value == round(value) for value in values)
    return draw_histogram(f"Scores, {check}", series, unit=UNITS.get(check, "score"), whole=whole)
