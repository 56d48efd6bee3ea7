"""Check a build against its profile's gates before publishing: yields and failed shares.

Reads the counts of resolved stages; writes ``gates.json``, the verdict on the last build.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from pydantic import TypeAdapter

from pairwright.schemas.bounds import GatesConfig
from pairwright.schemas.checks import without_bound
from pairwright.tasks.store.files import Folder, read_sealed, seal
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.stage import Planned

FILE = "gates.json"
MEND = "`pairwright resume` writes it anew; delete a damaged one first"
Resolved = Sequence[tuple[Planned, Counts]]
WRITTEN = ("no description", "captions", "described", "comparisons", "questions")
HINTS = {
    **dict.fromkeys(
        WRITTEN,
        "another model (models.chat), or more attempts (max_attempts in the section of the table)",
    ),
    "no scene graph": (
        "a model that sees photographs: --profile laptop --set models.chat.endpoint=URL; or, if "
        "the source brings differences, --set differences.writer=given"
    ),
    "nobody wrote about its difference": (
        "--set differences.writer=served, or a source with people's differences"
    ),
    "only near-identical neighbours": "a lower mining.min_hash_distance",
    "admitted": (
        "leaving out --exclude, other bounds in filters; check that the images have vectors "
        "(embedding)"
    ),
    "similar_pairs": (
        "other thresholds: mining.min_best_similarity, mining.min_similarity, "
        "mining.max_similarity. `pairwright view` shows the similarities, `pairwright refilter` "
        "tries other thresholds without embedding again"
    ),
    "matched_pairs": (
        "fewer matches (matching.min_matches), or more keypoints (matching.keypoints.max_count)"
    ),
    "nouns": "images with captions, or --set pairing=similarity",
    "noun_pairs": "fewer nouns (noun_pairs.levels), or --set pairing=similarity",
    "pairs": "without --exclude",
    "differences": (
        "weaker checks (controls, grounding, confirming, judging), or more candidates "
        "(differences.candidates)"
    ),
    "preferences": "--set rejections.fallback=none, or --set rejections.enabled=false",
}
"""Remedies for an empty table, by the most frequent reason, else by the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Measurement of one gate."""

    gate: str  # the field of ``GatesConfig``
    stage: str
    about: str  # what was measured: "ok of 120 inputs"
    measured: float
    bound: float
    why: str = ""  # tables that became empty, and what to try

    @property
    def holds(self) -> bool:
        """Return whether the measurement is within the bound."""
        if self.gate.startswith("min_"):
            return self.measured >= self.bound
        return self.measured <= self.bound

    def in_words(self) -> str:
        """Return one line with both numbers."""
        side = "at least" if self.gate.startswith("min_") else "at most"
        why = f". {self.why}" if self.why else ""
        bounds = f"{self.measured:.3g}, must be {side} {self.bound:.3g} (gates.{self.gate})"
        return f"{self.stage}: {self.about}: {bounds}{why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Verdict on a build, and its result."""

    began: str  # time at which the build listed its source (ISO 8601, UTC)
    ended: str
    complete: bool  # whether no row is pending
    version: int  # version that was published, or was already current; 0: not published
    gates: tuple[Gate, ...]
    stopped: str = ""  # why the build ended early, and how to continue; empty: it did not

    @property
    def failed(self) -> tuple[Gate, ...]:
        """Return the gates that failed."""
        return tuple(gate for gate in self.gates if not gate.holds)

    @property
    def held(self) -> bool:
        """Return whether the build was not published."""
        return not self.version

    @property
    def why(self) -> list[str]:
        """Return why it was not published: why it ended early, or else the gates that failed."""
        if self.stopped:
            return [self.stopped]
        return [gate.in_words() for gate in self.failed]


def measure_gates(config: GatesConfig, done: Resolved, targets: Sequence[str]) -> Iterator[Gate]:
    """Yield a build's gates: yields, failed shares, and whether any of ``targets`` has a row."""
    for _, count in done:
        yield from _judge_stage(config, count)
    on = {planned.stage.name: count for planned, count in done if planned.is_on}
    if any(count.failed + count.pending for count in on.values()):
        return
    counts = [on[name] for name in targets if name in on]
    if not counts or any(count.rows for count in counts):
        return
    last = counts[-1]
    if last.stage in config.min_yield:
        return
    yield Gate(
        gate="min_yield",
        stage=last.stage,
        about=f"ok of {last.of:,} inputs",
        measured=0.0,
        bound=1 / max(1, last.of),
        why=say_empty(done, targets),
    )


def _judge_stage(config: GatesConfig, count: Counts) -> Iterator[Gate]:
    min_yield = config.min_yield.get(count.stage)
    if min_yield:
        yield Gate(
            gate="min_yield",
            stage=count.stage,
            about=f"ok of {count.of:,} inputs",
            measured=count.ok / count.of if count.of else 0.0,
            bound=min_yield,
        )
    if count.of and config.max_failed < 1:
        yield Gate(
            gate="max_failed",
            stage=count.stage,
            about=f"failed or pending of {count.of:,} inputs",
            measured=(count.failed + count.pending) / count.of,
            bound=config.max_failed,
        )


def judge_source(config: GatesConfig, images: Counts, *, before: int) -> Iterator[Gate]:
    """Yield the gate of the images that are left of those of the version before."""
    if before and config.min_kept:
        yield Gate(
            gate="min_kept",
            stage=images.stage,
            about=f"{images.rows:,} images, {before:,} in the version before, of the same source",
            measured=images.rows / before,
            bound=config.min_kept,
            why="Check that the source is complete",
        )


def say_empty(done: Resolved, targets: Sequence[str]) -> str:
    """Return why the first three empty tables behind ``targets`` are empty, and what to try.

    Empty if none of them is.
    """
    empty = _empty_tables(done, targets)
    if not empty:
        return ""
    texts: list[str] = []
    for count in empty[:3]:
        reasons = [f"{reason}: {number:,}" for reason, number in _top_reasons(count)]
        texts.append(f"{count.stage} ({', '.join(reasons)})")
    hint = _hint(empty[0])
    advice = f" Try {hint}" if hint else ""
    return f"Empty: {'; '.join(texts)}.{advice}"


def _empty_tables(done: Resolved, targets: Sequence[str]) -> list[Counts]:
    """Return the tables without rows that ``targets`` are made of, in the order of the stages."""
    ancestors = set(targets)
    empty: list[Counts] = []
    for planned, count in reversed(done):
        if not planned.is_on or planned.stage.name not in ancestors:
            continue
        ancestors |= planned.inputs.input_tables
        if count.of and not count.rows:
            empty.append(count)
    empty.reverse()
    return empty


def _top_reasons(count: Counts) -> list[tuple[str, int]]:
    return Counter(count.reasons).most_common(3)


def _hint(count: Counts) -> str:
    """Return the remedy for an empty table."""
    for reason, _ in _top_reasons(count):
        head = without_bound(reason)
        if head in HINTS:
            return HINTS[head]
    return HINTS.get(count.stage, "")


def write_verdict(folder: Folder, verdict: Verdict) -> None:
    """Write the verdict on the last build."""
    folder.write(FILE, seal(asdict(verdict)))


def read_verdict(folder: Folder) -> Verdict | None:
    """Return the verdict on the last build; ``None`` before the first has ended."""
    if not folder.exists(FILE):
        return None
    return TypeAdapter(Verdict).validate_python(read_sealed(folder, FILE, mend=MEND))
