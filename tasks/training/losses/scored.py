"""What the objectives take and give: log-probabilities of answers, and a loss with what is worth logging.

A batch of B examples has A answers each, in columns: the chosen text (``CHOSEN``), the chosen text given the rejected
images (``IMAGE``), then the rejected texts (from ``TEXTS`` on), hardest first. What an example does not have is absent.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

CHOSEN, IMAGE, TEXTS = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Hold what a model gives the answers of a batch."""

    logps: "Tensor"
    """(B, A) float32: summed log-probabilities of each answer's tokens, its end mark counted; 0 where absent."""
    tokens: "Tensor"
    """(B, A) int64: their number; 0 where absent."""

    @property
    def present(self) -> "Tensor":
        """Return (B, A) bool: which answers there are."""
        return self.tokens > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Hold the loss of a batch."""

    value: "Tensor"
    """Scalar, to be differentiated; 0 (with zero gradients) where no example counts."""
    per_example: "Tensor"
    """(B,) detached: each example's share before the mean; 0 where it does not count."""
    metrics: "dict[str, Tensor]"
    """Detached scalars: means over the examples that count. Names are the same in all objectives where they mean the
    same: ``reward/chosen``, ``reward/rejected``, ``reward/image``, ``margin``, ``margin/image``, ``accuracy``,
    ``accuracy/image``, ``logp/chosen``, ``logp/rejected``, ``weight/text``, ``weight/image``. A metric that no example
    of the batch has is left out."""
    counts: "dict[str, float]"
    """What each metric is the mean over: so many examples, or for ``nll`` tokens."""
