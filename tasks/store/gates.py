"""Check a build against its profile's gates before publishing: yields and failed shares.

Reads the counts of settled stages; writes ``gates.json``, the verdict on the last build.
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
Settled = Sequence[tuple[Planned, Counts]]
WRITTEN = ("no description", "captions", "described", "comparisons", "questions")
HINTS = {
    **dict.fromkeys(
        WRITTEN,
        "another model (models.chat), or more attempts (max_attempts in the section of the table)",
    ),
    "no scene graph": (
        "a model that sees photographs: --profile laptop --set models.chat.endpoint=URL; or, if the source brings "
        "differences, --set differences.writer=given"
    ),
    "nobody wrote about its difference": "--set differences.writer=served, or a source with people's differences",
    "only near-identical neighbours": "a lower mining.min_hash_distance",
    "admitted": "leaving out --exclude, other bounds in filters; check that the images have vectors (embedding)",
    "similar_pairs": (
        "other thresholds: mining.min_best_similarity, mining.min_similarity, mining.max_similarity. `pairwright view` "
        "shows the similarities, `pairwright refilter` tries other thresholds without embedding again"
    ),
    "matched_pairs": "fewer matches (matching.min_matches), or more keypoints (matching.keypoints.max_count)",
    "nouns": "images with captions, or --set pairing=similarity",
    "noun_pairs": "fewer nouns (noun_pairs.levels), or --set pairing=similarity",
    "pairs": "without --exclude",
    "differences": "weaker checks (controls, grounding, judging), or more candidates (differences.candidates)",
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
        return (
            self.measured >= self.bound if self.gate == "min_yield" else self.measured <= self.bound
        )

    def say(self) -> str:
        """Return one line with both numbers."""
        side = "at least" if self.gate == "min_yield" else "at most"
        why = f". {self.why}" if self.why else ""
        bounds = f"{self.measured:.3g}, must be {side} {self.bound:.3g} (gates.{self.gate})"
        return f"{self.stage}: {self.about}: {bounds}{why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Verdict on a build, and its result."""

    began: str  # time at which the build listed its source (ISO 8601, UTC)
    ended: str
    complete: bool  # whether nothing is owed
    version: int  # version that was published, or was already current; 0: the build was held back
    gates: tuple[Gate, ...]
    stopped: str = ""  # why the build ended early, and how to continue; empty: it did not

    @property
    def failed(self) -> tuple[Gate, ...]:
        """Return the gates that failed."""
        return tuple(gate for gate in self.gates if not gate.holds)

    @property
    def held(self) -> bool:
        """Return whether the build was held back."""
        return not self.version

    @property
    def why(self) -> list[str]:
        """Return why it was held back: the reason why it ended early, or else the gates that failed."""
        return [self.stopped] if self.stopped else [gate.say() for gate in self.failed]


def judge(config: GatesConfig, done: Settled, asked: Sequence[str]) -> Iterator[Gate]:
    """Yield the gates of a build: yields, failed shares, and whether any table in ``asked`` has a row."""
    for _, one in done:
        if bound := config.min_yield.get(one.stage):
            share, about = one.ok / one.of if one.of else 0.0, f"ok of {one.of:,} inputs"
            yield Gate(gate="min_yield", stage=one.stage, about=about, measured=share, bound=bound)
        if one.of and config.max_failed < 1:
            share, about = (
                (one.failed + one.pending) / one.of,
                f"failed or pending of {one.of:,} inputs",
            )
            yield Gate(
                gate="max_failed",
                stage=one.stage,
                about=about,
                measured=share,
                bound=config.max_failed,
            )
    on = {planned.stage.name: count for planned, count in done if planned.is_on}
    found = [on[name] for name in asked if name in on]
    owed = any(one.failed + one.pending for one in on.values())
    if (
        found
        and not owed
        and found[-1].stage not in config.min_yield
        and not any(one.rows for one in found)
    ):
        last, why = found[-1], say_empty(done, asked)
        about, bound = f"ok of {last.of:,} inputs", 1 / max(1, last.of)
        yield Gate(
            gate="min_yield", stage=last.stage, about=about, measured=0.0, bound=bound, why=why
        )


def say_empty(done: Settled, asked: Sequence[str]) -> str:
    """Return a sentence on the first three empty tables behind ``asked``: why, and what to try; "" if none is empty."""
    wanted, empty = set(asked), list[Counts]()
    for planned, count in reversed(done):
        if planned.is_on and planned.stage.name in wanted:
            wanted |= planned.inputs.tables
            empty[:0] = [count] if count.of and not count.rows else []
    if not empty:
        return ""
    reasons = [Counter(count.reasons).most_common(3) for count in empty]
    told = [
        f"{count.stage} ({', '.join(f'{reason}: {number:,}' for reason, number in some)})"
        for count, some in zip(empty[:3], reasons, strict=False)
    ]
    heads = (without_bound(reason) for reason, _ in reasons[0])
    hint = next((HINTS[head] for head in heads if head in HINTS), HINTS.get(empty[0].stage, ""))
    return f"Empty: {'; '.join(told)}.{f' Try {hint}' if hint else ''}"


def write_verdict(folder: Folder, verdict: Verdict) -> None:
    """Write the verdict on the last build."""
    folder.write(FILE, seal(asdict(verdict)))


def read_verdict(folder: Folder) -> Verdict | None:
    """Return the verdict on the last build; ``None`` before the first has ended."""
    if not folder.exists(FILE):
        return None
    return TypeAdapter(Verdict).validate_python(read_sealed(folder, FILE, mend=MEND))
