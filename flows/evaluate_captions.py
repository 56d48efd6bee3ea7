"""Evaluate captions: read predictions and references, match them by a protocol, score them."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairwright.tasks.evaluation.protocols import Matched, match_captions
from pairwright.tasks.evaluation.read_captions import read_captions
from pairwright.tasks.evaluation.resample import CONFIDENCE
from pairwright.tasks.evaluation.score_captions import Score, Scores, ScoringConfig, score_captions


@dataclass(frozen=True)
class Evaluation:
    """What was scored, how, and the scores."""

    protocol: str
    config: ScoringConfig
    matched: Matched
    found: Scores

    def as_json(self) -> dict[str, Any]:
        """Return it for scripts: scores as fractions, intervals, counts, what was skipped and why."""
        found, matched = self.found, self.matched
        return {
            "protocol": self.protocol,
            "items": len(matched.items),
            "references": found.references,
            "left_out": {"blank_references": matched.blank, "items_without_references": matched.unreferenced},
            "predictions": {"empty": matched.empty, "missing": matched.missing},
            "tokeniser": {"name": found.tokenised_by, "reason": found.tokeniser_reason},
            "bootstrap": {"resamples": self.config.resamples, "seed": self.config.seed, "confidence": CONFIDENCE},
            "scores": {one.name: _as_json(one) for one in found.scores},
            "skipped": found.skipped,
        }


def _as_json(score: Score) -> dict[str, float | None]:
    """Return a score and its interval; JSON has no word for what SPICE leaves undefined."""
    ends = {"score": score.value, "low": score.low, "high": score.high}
    return {name: None if value is None or math.isnan(value) else value for name, value in ends.items()}


def evaluate_captions(
    predictions: Path,
    references: Path,
    config: ScoringConfig,
    *,
    protocol: str = "coco",
    missing: str = "refuse",
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Evaluation:
    """Score the captions of one file against those of another.

    Args:
        predictions: JSON Lines, JSON, or COCO's results: one text per id.
        references: the same, or COCO's annotations, or Spot-the-Diff's own file: texts per id.
        config: which metrics, and how.
        protocol: which texts are an item's references.
        missing: what becomes of references without a prediction.
        progress: hears how many steps are done, of how many.

    Raises:
        ConfigError: a file or an option is wrong; the message names it.
    """
    matched = match_captions(read_captions(predictions), read_captions(references), protocol=protocol, missing=missing)
    return Evaluation(protocol, config, matched, score_captions(matched, config, progress=progress))
