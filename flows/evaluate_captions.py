"""Evaluate captions: read predictions and references, match them by a protocol, score them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairwright.tasks.evaluation.measured import CONFIDENCE
from pairwright.tasks.evaluation.read_captions import Matched, match_captions, read_captions
from pairwright.tasks.evaluation.score_captions import CaptionScores, ScoringConfig, score_captions


@dataclass(frozen=True)
class Evaluation:
    """Scores of captions: what was scored, how, and the scores."""

    protocol: str
    config: ScoringConfig
    matched: Matched
    found: CaptionScores

    def as_json(self) -> dict[str, Any]:
        """Return it for scripts: scores as fractions, intervals, counts, what was skipped and why."""
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


def evaluate_captions(
    predictions: Path,
    references: Path,
    config: ScoringConfig,
    *,
    protocol: str = "coco",
    missing: str = "refuse",
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Evaluation:
    """Score the captions of one file against those of another; ``progress`` hears steps done, of how many."""
    matched = match_captions(read_captions(predictions), read_captions(references), protocol=protocol, missing=missing)
    return Evaluation(protocol, config, matched, score_captions(matched, config, progress=progress))
