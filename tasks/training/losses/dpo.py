"""Direct preference optimisation (Rafailov et al. 2023), with IPO, smoothed labels and several ranked negatives."""

from typing import TYPE_CHECKING

from pairwright.schemas.training import DpoConfig
from pairwright.tasks.training.losses.rewards import log_preferences, loss_of, rank_losses, rewards_of, surprise
from pairwright.tasks.training.losses.scored import Loss, Scored

if TYPE_CHECKING:
    from torch import Tensor


def dpo(policy: Scored, reference: Scored | None, config: DpoConfig) -> Loss:
    """Return the mean loss of ranking the chosen text above the rejected ones.

    With K rejected texts, hardest first, it is -log of the chance that the chosen one is first of all (``ranking:
    first``; S-DPO, Chen et al. 2024) or that the order is the given one (``full``; Plackett-Luce, Rafailov et al.
    2023, App. A.3). Both are -log sigmoid(margin) for K = 1. An example without a rejected text has its chosen text
    ranked above the same given the rejected images; without either, it does not count.

    Raises:
        ValueError: there is no reference, or it has scored other answers than the policy.
    """
    from torch import cat

    rewards = rewards_of(
        policy, reference, beta=config.beta, texts=config.max_negatives, per_token=config.length_normalised
    )
    has_texts = rewards.has_texts
    alone = rewards.has_image & ~has_texts.any(1)
    counts = alone | has_texts.any(1)
    ranked = cat([rewards.chosen[:, None], rewards.image[:, None], rewards.texts], 1)
    present = cat([counts[:, None], alone[:, None], has_texts], 1)
    return loss_of(_rank(ranked, present, config), counts, log_preferences(rewards))


def _rank(rewards: "Tensor", present: "Tensor", config: DpoConfig) -> "Tensor":
    """Return (B,): the loss of the order of each example's answers (B, K), the chosen one first."""
    if config.loss_type == "sigmoid" and not config.label_smoothing:
        losses = rank_losses(rewards, present)
        return losses.sum(1) if config.ranking == "full" else losses[:, 0]
    margins = rewards[:, 0] - rewards[:, 1:].where(present[:, 1:], 0).sum(1)
    if config.loss_type == "ipo":
        return _distance(margins, config)
    return (1 - config.label_smoothing) * surprise(margins) + config.label_smoothing * surprise(-margins)


def _distance(margins: "Tensor", config: DpoConfig) -> "Tensor":
    """Return the square of how far the margin before beta is from 1 / (2 beta) (Azar et al. 2023, Eq. 17).

    Smoothed labels are its expectation over preferences that are the wrong way round with that chance.
    """
    plain, aim = margins / config.beta, 1 / (2 * config.beta)
    wrong = config.label_smoothing
    return (1 - wrong) * (plain - aim).square() + wrong * (plain + aim).square()
