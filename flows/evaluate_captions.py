"""Evaluate captions: read predictions and references, match them by a protocol, score them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairwright.tasks.evaluation.measured import CONFIDENCE
from pairwright.tasks.evaluation.read_captions import Matched, match_captions, read_captions
from pairwright.tasks.evaluation.score_captions import CaptionScores, ScoringConfig, score_captions


@dataclass(frozen=True)
class Evaluation:
    """Scores of captions, with the items and the protocol."""

    protocol: str
    config: ScoringConfig
    matched: Matched
    found: CaptionScores

    def as_json(self) -> dict[str, Any]:
        """Return it for scripts: scores as fractions, intervals, counts, skipped metrics with reasons."""
        found, matched = self.found, self.matched
        return {
            "protocol": self.protocol,
            "items": len(matched.items),
            "references": found.references,
            "left_out": {"blank_references": matched.blank, "items_without_references": matched.unreferenced},
            "predictions": {"empty": matched.empty, "missing": matched.missing},
            "bootstrap": {"resamples": self.config.resamples, "seed": self.config.seed, "confidence": CONFIDENCE},
            "scores": {one.name: {"score": one.value, "low": one.low, "high": one.high} for one in found.scores},
            "skipped": found.skipped,
        }

    def cells(self) -> Iterator[tuple[object, ...]]:
        """Yield heads and scores, times 100 as papers print them, with their intervals."""
        yield "metric", ">x 100", f">{CONFIDENCE:.0%} interval"
        for one in self.found.scores:
            interval = "" if one.low is None or one.high is None else f"{100 * one.low:.2f} to {100 * one.high:.2f}"
            yield one.name, "-" if one.value is None else f"{100 * one.value:.2f}", interval
        yield from ((name.upper(), "-", "skipped") for name in self.found.skipped)

    def notes(self) -> Iterator[str]:
        """Yield the number of items, and what was left out or skipped."""
        matched, found = self.matched, self.found
        yield f"{len(matched.items):,} items, {found.references:,} references; protocol {self.protocol}"
        counts = {
            "references had no prediction": matched.missing,
            "predictions are empty": matched.empty,
            "blank references were left out": matched.blank,
            "items with blank references only were left out": matched.unreferenced,
        }
        yield from (f"{count:,} {text}" for text, count in counts.items() if count)
        yield from (f"{name} was skipped: {reason}" for name, reason in found.skipped.items())


def evaluate_captions(
    predictions: Path,
    references: Path,
    config: ScoringConfig,
    *,
    protocol: str = "coco",
    missing: str = "refuse",
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Evaluation:
    """Score the captions of one file against those of another; ``progress`` is called with steps done and total."""
    matched = match_captions(read_captions(predictions), read_captions(references), protocol=protocol, missing=missing)
    return Evaluation(protocol, config, matched, score_captions(matched, config, progress=progress))
