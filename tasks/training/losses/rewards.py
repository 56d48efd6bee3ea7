"""Scored answers, their rewards, and what ranking them wrongly costs: shared by the preference losses.

A batch of B examples has A answers each, in columns: the chosen text (``CHOSEN``), the chosen text given the rejected
images (``IMAGE``), then the rejected texts (from ``TEXTS`` on), hardest first. What an example does not have is absent.
torch is imported inside functions, so that ``objectives`` can be read where it is not loaded.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

CHOSEN, IMAGE, TEXTS = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Log-probabilities of a batch's answers under a model."""

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
    """Loss of a batch, with what is worth logging."""

    value: "Tensor"
    """Scalar, to be differentiated; 0 (with zero gradients) where no example counts."""
    metrics: "dict[str, Tensor]"
    """Detached scalars: means over the examples that have the metric; one that none has is left out."""
    counts: "dict[str, float]"
    """What each metric is the mean over: so many examples, or for ``nll`` tokens."""


Logged = Mapping[str, tuple["Tensor", "Tensor"]]
"""Of each metric, its value (B,) for every example and (B,) bool: which examples have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewards:
    """beta (log pi - log pi_ref) of a batch's answers, summed over their tokens or their mean; 0 where absent.

    There are K rejected texts, at least one.
    """

    chosen: "Tensor"
    """(B,)"""
    image: "Tensor"
    """(B,): of the chosen text, given the rejected images."""
    texts: "Tensor"
    """(B, K)"""
    has_image: "Tensor"
    """(B,) bool: which examples have something to rank above their chosen text with rejected images."""
    has_texts: "Tensor"
    """(B, K) bool: which rejected texts can be ranked below a chosen one."""
    logps: "Tensor"
    """(B, 2 + K): summed log-probabilities under the policy, detached; 0 where absent."""


def rewards_of(
    policy: Scored, reference: Scored | None, *, beta: float, texts: int | None = 1, per_token: bool = False
) -> Rewards:
    """Return the rewards of the chosen text, with rejected images, and of the first ``texts`` rejected texts (or all).

    They are the implicit rewards of Rafailov et al. 2023 (paper 004, Eq. 4), whose constant cancels in every margin.
    The reference gets no gradient.
    """
    if reference is None:
        raise ValueError("a preference is learned against a reference: its log-probabilities are missing")
    if reference.logps.shape != policy.logps.shape:
        shapes = tuple(policy.logps.shape), tuple(reference.logps.shape)
        raise ValueError(f"policy and reference have scored other answers: {shapes[0]} and {shapes[1]}")
    policy, reference = _with_columns(policy, texts), _with_columns(reference, texts)
    present = policy.present
    ratios = (policy.logps - reference.logps.detach()).where(present, 0)
    if per_token:
        ratios = ratios / policy.tokens.clamp(min=1)
    values, chosen = beta * ratios, present[:, CHOSEN]
    return Rewards(
        chosen=values[:, CHOSEN],
        image=values[:, IMAGE],
        texts=values[:, TEXTS:],
        has_image=chosen & present[:, IMAGE],
        has_texts=chosen[:, None] & present[:, TEXTS:],
        logps=policy.logps.detach().where(present, 0),
    )


def _with_columns(scored: Scored, texts: int | None) -> Scored:
    """Return at most so many rejected texts, and at least one, absent if there was none."""
    from torch.nn.functional import pad

    last = None if texts is None else TEXTS + texts
    logps, tokens = scored.logps[:, :last], scored.tokens[:, :last]
    missing = max(0, TEXTS + 1 - logps.shape[1])
    return Scored(logps=pad(logps, (0, missing)), tokens=pad(tokens, (0, missing)))


def surprise(margins: "Tensor") -> "Tensor":
    """Return -log sigmoid(margin) of each: near 0 for large ones, near -margin for very negative ones."""
    from torch.nn.functional import logsigmoid

    return -logsigmoid(margins)


def rank_losses(rewards: "Tensor", present: "Tensor") -> "Tensor":
    """Return (B, K): for answers (B, K) in their order, best first, -log of the chance that each beats those after it.

    The sum over an example's answers is Plackett-Luce's loss of the order, the first alone is the cross-entropy of
    the first against all others (S-DPO; paper 004, Eq. 11). Both are -log sigmoid(-log sum_l exp(r_l - r_k)), where
    the sum is over later answers; taken by logsumexp it cannot overflow. Absent answers give 0 and beat nobody.
    """
    import torch

    ahead = rewards[:, :, None]
    behind = torch.ones(rewards.shape[1:] * 2, dtype=torch.bool, device=rewards.device).triu(1)
    rivals = behind & present[:, None, :]
    # The lowest number, not -inf: where nobody is left, the gradient of logsumexp would be NaN, masked only later.
    lowest = torch.finfo(rewards.dtype).min
    lead = -(rewards[:, None, :] - ahead).masked_fill(~rivals, lowest).logsumexp(2)
    return surprise(lead).where(present & rivals.any(2), 0)


def loss_of(per_example: "Tensor", counts: "Tensor", logged: Logged) -> Loss:
    """Return the mean of (B,) losses over the examples that count, (B,) bool; 0, with zero gradients, if none does."""
    import torch

    having = torch.stack([mask for _, mask in logged.values()])
    values = torch.stack([value.detach() for value, _ in logged.values()]).where(having, 0)
    means = values.sum(1) / having.sum(1).clamp(min=1)
    numbers = dict(zip(logged, having.sum(1).tolist(), strict=True))  # the host waits only here
    return Loss(
        value=per_example.where(counts, 0).sum() / counts.sum().clamp(min=1),
        metrics={name: mean for name, mean in zip(logged, means, strict=True) if numbers[name]},
        counts={name: float(number) for name, number in numbers.items() if number},
    )


def log_preferences(rewards: Rewards) -> Logged:
    """Return what all preference losses log.

    Of several rejected texts, ``reward/rejected``, ``margin`` and ``logp/rejected`` take the mean; ``accuracy`` is the
    share of the examples whose chosen text has a larger reward than each of them.
    """
    has_texts, has_image = rewards.has_texts, rewards.has_image
    has_text = has_texts.any(1)
    counts = has_text | has_image
    rejected = _mean_of(rewards.texts, has_texts)
    beaten = (rewards.chosen[:, None] > rewards.texts) | ~has_texts
    ahead = rewards.chosen - rewards.image
    return {
        "reward/chosen": (rewards.chosen, counts),
        "reward/rejected": (rejected, has_text),
        "reward/image": (rewards.image, has_image),
        "margin": (rewards.chosen - rejected, has_text),
        "margin/image": (ahead, has_image),
        "accuracy": (beaten.all(1).to(ahead.dtype), has_text),
        "accuracy/image": ((ahead > 0).to(ahead.dtype), has_image),
        "logp/chosen": (rewards.logps[:, CHOSEN], counts),
        "logp/rejected": (_mean_of(rewards.logps[:, TEXTS:], has_texts), has_text),
    }


def _mean_of(values: "Tensor", having: "Tensor") -> "Tensor":
    """Return (B,): the mean over the columns that an example has; 0 if none."""
    return values.where(having, 0).sum(1) / having.sum(1).clamp(min=1)
