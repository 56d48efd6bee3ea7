"""Measure what a writer's texts and their checks are worth, on planted pairs (ours).

Reads the tables of an audit's dataset: ``described``, the tables of the checks, ``differences``,
the pairs and the scene graphs of their images.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pairwright.schemas.claims import Graphs
from pairwright.schemas.rows import CheckRow, DifferenceRow, PairRow
from pairwright.tasks.audit.judge_texts import Judgement, Truth, judge_text
from pairwright.tasks.pages.charts import Proportion

MAX_FALSE_KEPT = 0.1
"""Share of false texts that a threshold may keep."""
THRESHOLDS = {
    "swapped": "controls.min_score",
    "grounded": "grounding.min_margin",
    "confirmed": "confirming.min_score",
    "judged": "judging.min_rating",
}
"""Settings of the checks that have a threshold."""
MAX_EXAMPLES = 8  # texts of each verdict that are shown
Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Share:
    """Share of texts, with its 95 % interval."""

    hits: int
    of: int
    value: float | None
    """``None``: there are no such texts."""
    interval: Interval | None

    @classmethod
    def of_texts(cls, hits: int, of: int) -> "Share":
        """Return the share of ``hits`` in ``of`` texts."""
        if not of:
            return cls(hits=0, of=0, value=None, interval=None)
        proportion = Proportion(hits, of)
        low, high = proportion.interval()
        interval = (round(low, 4), round(high, 4))
        return cls(hits=hits, of=of, value=round(proportion.value, 4), interval=interval)


@dataclass(frozen=True, kw_only=True)
class Point:
    """Shares of true and of false texts that a threshold keeps."""

    threshold: float
    true_kept: float
    false_kept: float


@dataclass(frozen=True, kw_only=True)
class CheckWorth:
    """Worth of one check: the shares of true and of false texts that it keeps."""

    name: str
    true_kept: Share
    false_kept: Share
    setting: str = ""
    """Setting of its threshold; empty: it has none."""
    curve: tuple[Point, ...] = ()
    """What each threshold would keep, from the lowest."""
    advice: str = ""
    """Line that sets the threshold which keeps at most ``MAX_FALSE_KEPT`` of the false texts and
    most of the true ones; empty: none does."""


@dataclass(frozen=True, kw_only=True)
class KindWorth:
    """Share of true texts about one kind of change."""

    name: str
    true: Share


@dataclass(frozen=True, kw_only=True)
class ShownText:
    """Text with its verdict, and what the checks made of it."""

    text: str
    verdict: str
    why: str
    kept: bool
    failed: str
    """Reason of the first check that it failed; empty: it passed them all."""


@dataclass(frozen=True, kw_only=True)
class Worth:
    """Worth of a writer's texts and of their checks."""

    pairs: int
    undescribed: int
    """Pairs without an accepted text."""
    unclear: int
    """Texts whose truth is not known: they count in no share."""
    written: Share
    """True texts of those written."""
    chosen: Share
    """True texts of those that passed all checks and were chosen."""
    true_kept: Share
    """True texts that all checks together keep."""
    false_kept: Share
    """False texts that all checks together keep."""
    checks: tuple[CheckWorth, ...]
    kinds: tuple[KindWorth, ...]
    reasons: Mapping[str, int]
    """Reasons why texts are false or unclear, the most frequent first."""
    examples: tuple[ShownText, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return it for scripts."""
        return asdict(self)


@dataclass(slots=True)
class AuditedText:
    """Description of a planted pair, its truth and the outcomes of its checks."""

    row: DifferenceRow
    pair: PairRow
    judgement: Judgement
    checks: list[CheckRow] = field(default_factory=list[CheckRow])
    is_chosen: bool = False

    @property
    def passed(self) -> bool:
        """Return whether it passed all checks."""
        return all(check.passed for check in self.checks)

    @property
    def is_true(self) -> bool:
        """Return whether it is true."""
        return self.judgement.verdict is Truth.TRUE

    @property
    def is_false(self) -> bool:
        """Return whether it is false."""
        return self.judgement.verdict is Truth.FALSE


def audit_texts(
    described: Iterable[DifferenceRow],
    pairs: Mapping[str, PairRow],
    graphs: Mapping[str, Graphs],
    checks: Iterable[CheckRow],
    chosen: Iterable[DifferenceRow],
) -> list[AuditedText]:
    """Return the descriptions with their truth and their checks.

    ``pairs`` and ``graphs`` are by the pair's key; ``chosen``: the rows of ``differences``.
    """
    outcomes: dict[str, list[CheckRow]] = defaultdict(list)
    for check in checks:
        outcomes[check.description].append(check)
    chosen_keys = {row.key for row in chosen}
    return [
        AuditedText(
            row=row,
            pair=pairs[row.subject],
            judgement=judge_text(row, graphs[row.subject]),
            checks=outcomes[row.key],
            is_chosen=row.key in chosen_keys,
        )
        for row in described
    ]


def measure_worth(texts: Sequence[AuditedText], pairs: int) -> Worth:
    """Return what texts and checks are worth; ``pairs``: the number of planted pairs."""
    true_texts = [text for text in texts if text.is_true]
    false_texts = [text for text in texts if text.is_false]
    known = len(true_texts) + len(false_texts)
    chosen_true = sum(text.is_chosen for text in true_texts)
    chosen_false = sum(text.is_chosen for text in false_texts)
    reasons = Counter(text.judgement.why for text in texts if text.judgement.why)
    described = {text.row.subject for text in texts}
    return Worth(
        pairs=pairs,
        undescribed=pairs - len(described),
        unclear=len(texts) - known,
        written=Share.of_texts(len(true_texts), known),
        chosen=Share.of_texts(chosen_true, chosen_true + chosen_false),
        true_kept=_count_passed(true_texts),
        false_kept=_count_passed(false_texts),
        checks=tuple(_measure_checks(true_texts, false_texts)),
        kinds=tuple(_measure_kinds(texts)),
        reasons=dict(reasons.most_common()),
        examples=tuple(_choose_examples(texts)),
    )


def _count_passed(texts: Sequence[AuditedText]) -> Share:
    return Share.of_texts(sum(text.passed for text in texts), len(texts))


def _measure_checks(
    true_texts: Sequence[AuditedText], false_texts: Sequence[AuditedText]
) -> list[CheckWorth]:
    """Return the worth of each check, in the order of the tables."""
    names = dict.fromkeys(
        check.check for text in (*true_texts, *false_texts) for check in text.checks
    )
    return [_measure_check(name, true_texts, false_texts) for name in names]


def _measure_check(
    name: str,
    true_texts: Sequence[AuditedText],
    false_texts: Sequence[AuditedText],
) -> CheckWorth:
    true_checks = _checks_named(name, true_texts)
    false_checks = _checks_named(name, false_texts)
    setting = THRESHOLDS.get(name, "")
    curve: tuple[Point, ...] = ()
    if setting and true_checks and false_checks:
        curve = draw_curve(
            [check.score for check in true_checks], [check.score for check in false_checks]
        )
    return CheckWorth(
        name=name,
        true_kept=Share.of_texts(sum(check.passed for check in true_checks), len(true_checks)),
        false_kept=Share.of_texts(sum(check.passed for check in false_checks), len(false_checks)),
        setting=setting,
        curve=curve,
        advice=_advise(setting, curve),
    )


def _checks_named(name: str, texts: Sequence[AuditedText]) -> list[CheckRow]:
    return [check for text in texts for check in text.checks if check.check == name]


def draw_curve(true_scores: Sequence[float], false_scores: Sequence[float]) -> tuple[Point, ...]:
    """Return the shares of true and of false texts that reach each score that occurs."""
    thresholds = sorted({round(score, 6) for score in (*true_scores, *false_scores)})
    points: list[Point] = []
    for threshold in thresholds:
        true_kept = sum(score >= threshold for score in true_scores) / len(true_scores)
        false_kept = sum(score >= threshold for score in false_scores) / len(false_scores)
        point = Point(
            threshold=threshold, true_kept=round(true_kept, 4), false_kept=round(false_kept, 4)
        )
        points.append(point)
    return tuple(points)


def _advise(setting: str, curve: Sequence[Point]) -> str:
    """Return the line that sets the best threshold; empty: none keeps so few false texts."""
    strict = [point for point in curve if point.false_kept <= MAX_FALSE_KEPT]
    if not strict:
        return ""
    best = max(strict, key=lambda point: (point.true_kept, -point.false_kept))
    if not best.true_kept:
        return ""
    value = f"{best.threshold:.4g}"
    if setting == "judging.min_rating":
        value = str(round(best.threshold))
    return (
        f"--set {setting}={value}  # keeps {best.true_kept:.0%} of the true texts, "
        f"{best.false_kept:.0%} of the false ones"
    )


def _measure_kinds(texts: Sequence[AuditedText]) -> list[KindWorth]:
    """Return the share of true texts by kind of change; a pair with several counts for each."""
    by_kind: dict[str, list[AuditedText]] = defaultdict(list)
    for text in texts:
        if not (text.is_true or text.is_false):
            continue
        for change in text.pair.change_types:
            by_kind[change].append(text)
    kinds: list[KindWorth] = []
    for name, of_kind in sorted(by_kind.items()):
        true_texts = sum(text.is_true for text in of_kind)
        kinds.append(KindWorth(name=name, true=Share.of_texts(true_texts, len(of_kind))))
    return sorted(kinds, key=lambda kind: kind.true.value or 0.0)


def _choose_examples(texts: Sequence[AuditedText]) -> list[ShownText]:
    """Return texts whose checks erred first, a few of each verdict."""
    examples: list[ShownText] = []
    for verdict in Truth:
        of_verdict = [text for text in texts if text.judgement.verdict is verdict]
        of_verdict.sort(key=lambda text: (text.passed == text.is_true, text.row.key))
        for text in of_verdict[:MAX_EXAMPLES]:
            failed = [check.why for check in text.checks if not check.passed]
            example = ShownText(
                text=text.row.text,
                verdict=verdict.value,
                why=text.judgement.why,
                kept=text.passed,
                failed=failed[0] if failed else "",
            )
            examples.append(example)
    return examples
