"""mDPO (Wang et al. 2024, "Conditional Preference Optimization for Multimodal Large Language Models"): a baseline."""

from pairwright.schemas.training import MdpoConfig
from pairwright.tasks.training.losses.rewards import log_preferences, loss_of, rewards_of, surprise
from pairwright.tasks.training.losses.scored import Loss, Scored


def mdpo(policy: Scored, reference: Scored | None, config: MdpoConfig) -> Loss:
    """Return the mean of DPO on the rejected text plus DPO on the rejected images plus the anchor.

    The anchor is -log sigmoid(r++ - delta); without it, two DPO losses are added. An example with one rejected side
    only has plain DPO on it, without the anchor (ours), so that it is the same as in the other objectives; one with
    none does not count. Further rejected texts are not looked at.

    Raises:
        ValueError: there is no reference, or it has scored other answers than the policy.
    """
    rewards = rewards_of(policy, reference, beta=config.beta)
    has_text, has_image = rewards.has_texts[:, 0], rewards.has_image
    per_text = surprise(rewards.chosen - rewards.texts[:, 0]).where(has_text, 0)
    per_image = surprise(rewards.chosen - rewards.image).where(has_image, 0)
    per_example = per_text + per_image
    if config.anchor_enabled:
        per_example = per_example + surprise(rewards.chosen - config.delta).where(has_text & has_image, 0)
    return loss_of(per_example, has_text | has_image, log_preferences(rewards))
