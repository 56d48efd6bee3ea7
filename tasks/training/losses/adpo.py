"""ADPO's two losses (paper 000, section 4): of the policy, and of the retriever that picks its negatives.

The paper's Algorithm 1 has both signs the other way round than its Eqs. 5 to 7 and its text: taken literally, the
policy's margin would fall (steps 8, 11) and the retriever would pick easy negatives (9, 12). Here, both follow the
equations: the policy descends on the loss, the retriever ascends on it.
"""

from typing import TYPE_CHECKING

from pairwright.schemas.training import AdpoConfig
from pairwright.tasks.training.losses.rewards import Rewards, log_preferences, loss_of, rewards_of, surprise
from pairwright.tasks.training.losses.scored import Loss, Scored

if TYPE_CHECKING:
    from torch import Tensor


def adpo(policy: Scored, reference: Scored | None, config: AdpoConfig) -> Loss:
    """Return the mean of -log sigmoid(M) over the m sampled negatives, which are all columns from ``TEXTS`` on (Eq. 5).

    Rejected images are not looked at. An example without a negative does not count.

    Raises:
        ValueError: there is no reference, or it has scored other answers than the policy.
    """
    rewards = rewards_of(policy, reference, beta=config.beta, texts=None)
    having = rewards.has_texts
    losses = _per_negative(rewards).where(having, 0)
    per_example = losses.sum(1) / having.sum(1).clamp(min=1)
    logged = {name: value for name, value in log_preferences(rewards).items() if not name.endswith("/image")}
    return loss_of(per_example, having.any(1), logged)


def negative_rewards(policy: Scored, reference: Scored | None, config: AdpoConfig) -> "Tensor":
    """Return (B, m) detached: R = -log sigmoid(M), what the retriever gets for each negative; NaN where absent.

    Raises:
        ValueError: there is no reference, or it has scored other answers than the policy.
    """
    rewards = rewards_of(policy, reference, beta=config.beta, texts=None)
    return _per_negative(rewards).detach().where(rewards.has_texts, float("nan"))


def _per_negative(rewards: Rewards) -> "Tensor":
    """Return (B, m): -log sigmoid of the margin (Eq. 4) between the chosen text and each negative."""
    return surprise(rewards.chosen[:, None] - rewards.texts)


def retriever_loss(log_q: "Tensor", rewards: "Tensor", baseline: "Tensor | None") -> "Tensor":
    """Return -mean[(R - b) log q], whose gradient is, on average, that of -E[R] (Eq. 7, REINFORCE).

    Args:
        log_q: (B, m) log-probabilities of the sampled negatives under the retriever that drew them.
        rewards: (B, m) from ``negative_rewards``; NaN ones are left out.
        baseline: scalar: b of an example with one sample, none: 0 (the paper). With two or more, each one's b is the
            mean of the example's others, which keeps the mean of the gradient since draws are independent (ours).
    """
    having = ~rewards.isnan()
    rewards = rewards.detach().where(having, 0)
    drawn = having.sum(1, keepdim=True)
    others = (rewards.sum(1, keepdim=True) - rewards) / (drawn - 1).clamp(min=1)
    single = 0.0 if baseline is None else baseline.detach()
    advantages = (rewards - others.where(drawn > 1, single)).where(having, 0)
    per_pair = -(advantages * log_q.where(having, 0)).sum(1) / drawn[:, 0].clamp(min=1)
    return per_pair.sum() / having.any(1).sum().clamp(min=1)
