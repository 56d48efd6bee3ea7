"""The adaptive preference loss of AdaViP (paper 004, section 3.3)."""

from pairwright.schemas.training import AdavipConfig
from pairwright.tasks.training.losses.rewards import Logged, Rewards, log_preferences, loss_of, rank_losses, rewards_of
from pairwright.tasks.training.losses.scored import Loss, Scored


def adavip(policy: Scored, reference: Scored | None, config: AdavipConfig) -> Loss:
    """Return the mean cross-entropy of the chosen text against the rejected text and against the rejected images.

    With rewards r++, r+- (text rejected) and r-+ (the chosen text, given the rejected images) it is Eq. 11,
    -log sigmoid(-log(exp(r+- - r++) + exp(r-+ - r++))). An example with one rejected side only has plain DPO on it,
    one with none does not count; further rejected texts are not looked at. The weights of Eq. 13 are logged over the
    examples that have both sides.

    Raises:
        ValueError: there is no reference, or it has scored other answers than the policy.
    """
    from torch import cat, stack

    rewards = rewards_of(policy, reference, beta=config.beta)
    has_text, has_image = rewards.has_texts[:, 0], rewards.has_image
    counts = has_text | has_image
    ranked = cat([rewards.chosen[:, None], rewards.texts, rewards.image[:, None]], 1)
    present = stack([counts, has_text, has_image], 1)
    logged = {**log_preferences(rewards), **_weights(rewards)}
    return loss_of(rank_losses(ranked, present)[:, 0], counts, logged)


def _weights(rewards: Rewards) -> Logged:
    """Return Eq. 13: the shares of the two rejected sides in what the loss takes from log-probabilities."""
    both = rewards.has_texts[:, 0] & rewards.has_image
    lead = rewards.texts[:, 0] - rewards.image
    return {"weight/text": (lead.sigmoid(), both), "weight/image": ((-lead).sigmoid(), both)}
