"""NAMC's three losses (paper 001, 3.3 and Appendix E): alignment, reconstruction, description."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

TEMPERATURE = 0.02
EPSILON = 1e-8
"""IRRA's values (Jiang and Ye 2023); NAMC does not print its own."""
IGNORED = -100
"""Label of what is not to be learnt."""


def align(images: "Tensor", texts: "Tensor", identity: "Tensor") -> "Tensor":
    """Return IRRA's similarity distribution matching, both directions.

    KL(p || q) of the softmax p over cosines / 0.02 and the shares q of the texts that are alike: a text that occurs
    twice in a batch is no false negative. Summed over the batch's other side, averaged over it. In float32 within
    autocast, too: cosines in bfloat16 are off by 0.002, logits by 0.1.

    Args:
        images: ``(B, e)``.
        texts: ``(B, e)``.
        identity: ``(B,)``, equal where the texts are the same.
    """
    import torch
    from torch.nn.functional import normalize

    with torch.autocast(images.device.type, enabled=False):
        logits = normalize(images.float(), dim=-1) @ normalize(texts.float(), dim=-1).T / TEMPERATURE
    same = (identity[:, None] == identity).float()
    wanted = same / same.sum(1, keepdim=True)  # of both directions: which texts are alike is symmetric
    return _diverge(logits, wanted) + _diverge(logits.T, wanted)


def _diverge(logits: "Tensor", wanted: "Tensor") -> "Tensor":
    logs = logits.log_softmax(1)
    return (logs.exp() * (logs - (wanted + EPSILON).log())).sum(1).mean()


def reconstruct(logits: "Tensor", codes: "Tensor", masked: "Tensor", *, of: int | None = None) -> "Tensor":
    """Return the mean cross-entropy of VQGAN's codes at masked places; 0 where nothing is masked.

    The paper's Eq. 18 sums over all places, its text speaks of masked ones; the text is followed.

    Args:
        logits: ``(B, places, codes)``.
        codes: ``(B, places)``.
        masked: ``(B, places)`` bool.
        of: how many masked places the mean is over, where these rows are a part of a batch; ``None``: theirs.
    """
    from torch.nn.functional import cross_entropy

    losses = cross_entropy(logits.float().flatten(0, 1), codes.flatten(), reduction="none")
    return (losses * masked.flatten()).sum() / max(int(masked.sum()) if of is None else of, 1)


def describe(logits: "Tensor", labels: "Tensor", *, of: int | None = None) -> "Tensor":
    """Return the mean cross-entropy of the next token; 0 where nothing is to be learnt.

    Args:
        logits: ``(B, T, vocabulary)``, of what follows each token.
        labels: ``(B, T)``, what does; ``IGNORED`` where it does not count.
        of: how many labels the mean is over, where these rows are a part of a batch; ``None``: theirs that count.
    """
    from torch.nn.functional import cross_entropy

    losses = cross_entropy(logits.float().flatten(0, 1), labels.flatten(), reduction="sum", ignore_index=IGNORED)
    return losses / max(int((labels != IGNORED).sum()) if of is None else of, 1)
