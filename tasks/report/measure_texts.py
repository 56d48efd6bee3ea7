"""Measure texts: repetition, variety, verbs and refusals of differences, axes of comparisons, checks.

Reads the texts and narrow columns of ``DifferenceRow``, ``PreferenceRow``, ``ComparisonRow`` and ``CheckRow``; DuckDB
counts. Variety (ours) is that of a sample, since more texts repeat more.

Repeated, after paper 001, Table 14: of equal descriptions (white space aside; case and full stops count, of which the
paper says nothing) all but the first. The paper generates once and filters; a refused answer is asked for again here,
so the comparable number is the share of refused first answers. Axes as in paper 003, Figure 3 (c); of its mean words,
those of statements count here, not headings and labels.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from pairwright.prompts import difference_verbs
from pairwright.schemas.checks import AGAINST, SEEN_IN_SAME, without_bound
from pairwright.schemas.phrases import NUMBERS, SPOKEN, SURFACE, bare
from pairwright.tasks.pages.charts import Chart, Tally, draw_histogram
from pairwright.tasks.report.tables import WORDS, Tables
from pairwright.tasks.scenes.vocabulary import COLOURS, DIRECTIONS, HEIGHTS, PLACES, SHAPES, TEXTS, TINTS
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.texts.comparisons import AXES
from pairwright.tasks.texts.differences import REASONS, inflections
from pairwright.tasks.texts.words import split_by_rules

MOST_SHOWN = 5
PLAIN = "array_to_string(regexp_extract_all(coalesce(text, ''), '[^\\s]+'), ' ')"
"""Text with normalised white space, as SQL."""
CHANGED = "NOT coalesce(no_change, false)"
MOST_VARIED = 108
UNLABELLED = "no axis named"
MEANINGS = {
    "swapped": "The pair in the other order must give the description the other way round.",
    "same": "One of the images, shown twice, must give no difference.",
    "grounded": "Each half must fit its own image better than the other one.",
    "judged": "A model rates the description: 0 is wrong, 5 is right in every word.",
}
UNITS = {
    "swapped": "likeness, crosswise less straight",
    "grounded": "cosine difference",
    "judged": "rating",
}


class Repetition(NamedTuple):
    """Number of all and of different sentences (as in paper 001, Table 14), or other parts of texts."""

    total: int
    unique: int

    @property
    def repeated(self) -> int:
        """Return the number of repetitions."""
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
"""Paper 001, Table 14, by source of the images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """Measurements of the descriptions of differences."""

    sentences: Repetition
    changed: Repetition
    """Repetition of those that name a change."""
    most: Sequence[tuple[str, int]]
    """The most frequent repeated sentences, with their counts."""
    verbs: dict[str, int]
    """Halves by their verb of the paper's list, most frequent first."""
    again: int
    """Descriptions accepted after a refused first answer."""
    refused: dict[str, int]
    """Pairs with refused answers only, by the last reason."""

    @property
    def listed(self) -> int:
        """Return the number of listed verbs."""
        return len(difference_verbs())

    @property
    def beside(self) -> list[tuple[str, Repetition]]:
        """Return the repetition of these descriptions and of the paper's."""
        return [("this dataset", self.sentences), *((f"paper, {name}", found) for name, found in PAPER.items())]

    @property
    def lost(self) -> int:
        """Return the number of pairs with refused answers only."""
        return sum(self.refused.values())

    @property
    def asked(self) -> int:
        """Return the number of first answers."""
        return self.sentences.total + self.lost

    @property
    def share_refused(self) -> float:
        """Return the share of refused first answers."""
        return (self.again + self.lost) / max(self.asked, 1)


def measure_differences(tables: Tables, counts: Sequence[Counts]) -> Differences | None:
    """Measure all written descriptions, also those that failed a check; ``None``: none."""
    reasons = next((one.reasons for one in counts if one.stage == "described"), {})
    refused = {reason: number for reason, number in reasons.items() if without_bound(reason) in REASONS}
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
    """Count verbs by their listed form, most frequent first; an unlisted one under its own."""
    listed = {form: verb for verb in difference_verbs() for form in inflections(verb)}
    counts: Counter[str] = Counter()
    for verb, number in found.items():
        counts[listed.get(verb, verb)] += number
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


@dataclass(frozen=True, slots=True, kw_only=True)
class Variety:
    """Variety of a sample of different texts."""

    texts: int
    counted: Mapping[str, Repetition]
    """Words, 2-grams (neighbouring words of a text) and sentence skeletons."""
    commonest: tuple[str, int]
    """The most common skeleton, with its count."""


def measure_variety(tables: Tables) -> Variety | None:
    """Measure a fixed sample of chosen texts or, without preferences, of descriptions; ``None``: none."""
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
    """Return the skeleton of a sentence, with "…" for the things that it names and their attributes."""
    bare_of_number = sentence.lstrip("0123456789. ")  # of an item of a list
    return re.sub(r"…(?:(?:,|,? and|,? or)? …)+", "…", _scene_words().sub("…", bare_of_number).lower())


@cache
def _scene_words() -> re.Pattern[str]:
    """Match the words of rendered scenes and the verbs of paper 001, with prepositions and articles."""
    words = ["object", *SHAPES, *COLOURS, *TINTS, *DIRECTIONS, *HEIGHTS, *NUMBERS, *SPOKEN.values(), *map(bare, PLACES)]
    words += [word for kind in SHAPES.values() for word in (*kind.materials, *kind.poses)]
    words += [word for named in SURFACE.values() for word in named.values()]
    words += [f"reading '{text}'" for text in TEXTS]
    named = "|".join(sorted(map(re.escape, [*words, *difference_verbs()]), key=len, reverse=True))
    place = r"(?:(?:in|on|on top of) )?(?:(?:an?|the) )?"
    return re.compile(rf"(?<!\w){place}(?:(?:{named})(?:e?s)?|\d+)(?!\w)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summaries:
    """Measurements of the comparisons."""

    rows: int
    common_words: float
    """Mean words of the commonalities of one summary."""
    difference_words: float
    axes: dict[str, int]
    """Summaries with each axis, and those with a statement on no axis, if any."""
    per_summary: float
    """Mean number of different axes of a summary."""
    asked: int
    """Conversations with the retrieval question."""
    answers: dict[str, int]
    """Right answers ("A" is the first image)."""


def measure_summaries(tables: Tables) -> Summaries | None:
    """Measure all comparisons; ``None``: none."""
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
    """Count the rows with statements on each axis ("counts, locations"), and those with one on no axis."""
    known = f"[{', '.join(repr(axis) for axis in AXES)}]"
    named = f"list_intersect(string_split(label, ', '), {known})"
    labels = f"SELECT number, {named} AS named FROM (SELECT number, unnest(axes) AS label FROM comparisons)"
    each = f"SELECT DISTINCT number, unnest(CASE WHEN len(named) = 0 THEN ['{UNLABELLED}'] ELSE named END) AS value"
    return tables.count(f"{each} FROM ({labels})", {"comparisons": ["axes"]})


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Outcome of one check."""

    name: str
    meaning: str
    rows: int
    passed: int
    why: dict[str, int]
    """Reasons of failures, the most frequent first."""
    off: dict[str, int]
    """Reasons why the check was not possible for others."""
    scores: Chart | None
    """Scores of passed and of wrong descriptions."""

    @property
    def share(self) -> float:
        """Return the share that passed."""
        return self.passed / max(self.rows, 1)

    @property
    def against(self) -> int:
        """Return the number found wrong, without inconclusive failures."""
        return sum(number for why, number in self.why.items() if without_bound(why) in AGAINST)


def says_something(why: str) -> bool:
    """Return whether a failed check was conclusive, so that its score counts."""
    return without_bound(why) in AGAINST or why == SEEN_IN_SAME


def measure_checks(tables: Tables, name: str) -> Iterator[Check]:
    """Yield the checks of a table."""
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
    values = {value for own in found.values() for value in own.values.tolist()}
    if len(values) < 2:
        return None
    tones = {"passed": "chosen", "failed": "rejected"}
    series = [(name, tone, found[name]) for name, tone in tones.items() if name in found]
    whole = all(value == round(value) for value in values)
    return draw_histogram(f"Scores, {check}", series, unit=UNITS.get(check, "score"), whole=whole)
