"""Sample negatives from the retriever's distribution q over a pair's candidates (paper 000, Eq. 3).

Needs PyTorch. q is the softmax of the logits over the candidates that there are; nothing else can be drawn.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from pairwright.tasks.training.retriever.pool import Places

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Hold what was drawn for B pairs from their N candidates."""

    columns: Places
    """(B, m) which candidates; 0 for a pair that has none."""
    log_q: "Tensor"
    """(B, m) their log-probabilities, differentiable; 0 without a gradient for a pair that has none."""
    entropy: "Tensor"
    """(B,) of q in nats, detached."""
    available: "Tensor"
    """(B,) candidates that there are."""

    @property
    def effective(self) -> "Tensor":
        """Return ``(B,)`` the number of candidates that equal chances would give the same entropy: exp(H)."""
        return self.entropy.exp()

    @property
    def entropy_share(self) -> "Tensor":
        """Return ``(B,)`` the entropy as a share of that of equal chances; 1 where there is no choice."""
        most = self.available.clamp(min=1).log()
        return torch.where(most > 0, self.entropy / most.clamp(min=1e-12), torch.ones_like(most)).clamp(0, 1)


def sample(logits: "Tensor", present: "Tensor", shares: NDArray[np.float64]) -> Drawn:
    """Draw m of each pair's candidates, independently, each as often as q says.

    Args:
        logits: ``(B, N)`` float32.
        present: ``(B, N)`` bool: which candidates there are.
        shares: ``(B, m)`` numbers from 0 to 1, exclusive: where in the cumulative distribution each draw falls.
    """
    log_q = masked_log_softmax(logits, present)
    detached = log_q.detach().double()
    columns = _invert(detached.exp().where(present, 0.0).cpu().numpy(), shares)
    chosen = torch.from_numpy(columns).to(logits.device)
    having = present.any(1, keepdim=True)
    entropy = -(detached.exp() * detached).where(present, 0.0).sum(1)
    return Drawn(
        columns=columns,
        log_q=log_q.gather(1, chosen).where(having, 0.0),
        entropy=entropy.float().clamp(min=0),
        available=present.sum(1).float(),
    )


def masked_log_softmax(logits: "Tensor", present: "Tensor") -> "Tensor":
    """Return ``(B, N)`` log q over the candidates that there are; very low where there is none."""
    return logits.masked_fill(~present, torch.finfo(logits.dtype).min).log_softmax(1)


def _invert(chances: NDArray[np.float64], shares: NDArray[np.float64]) -> Places:
    """Return for each share the candidate in whose part of the cumulative distribution it falls.

    A candidate without a chance has a part of no length, which nothing falls into.
    """
    ends = np.cumsum(chances, axis=1)
    reached = shares * ends[:, -1:]
    columns = (ends[:, None, :] <= reached[:, :, None]).sum(-1)
    return np.where(ends[:, -1:] > 0, columns, 0)
