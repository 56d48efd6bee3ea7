"""Losses as plain functions of tensors, and the parts of a row that each objective needs.

SFT; DPO (Rafailov et al. 2023) with one or several negatives; mDPO (Wang et al. 2024,
"Conditional Preference Optimization for Multimodal Large Language Models"), a baseline; AdaViP
(paper 004, section 3.3); SymMPO (Liu et al. 2025, "Mitigating Hallucination Through
Theory-Consistent Symmetric Multimodal Preference Optimization"); ADPO (paper 000, section 4), the
policy's loss and the retriever's.

ADPO's Algorithm 1 reverses both signs of its Eqs. 5 to 7 and its text: taken literally, the
policy's margin would fall (steps 8, 11) and the retriever would pick easy negatives (9, 12). Here
both follow the equations: the policy descends on the loss, the retriever ascends on it.

A batch of B examples has A answers each, in columns: the chosen text (``CHOSEN``), the chosen text
given the rejected images (``IMAGE``), then the rejected texts (from ``TEXTS`` on), hardest first;
any may be absent. For SymMPO the rejected images are the prompt's in the other order, and two of
the texts are the text of that order, given both orders (``SWAPPED``, ``EXCHANGED``). torch is
imported inside functions, so that ``needs_of`` works without it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pairwright.schemas import training as settings
from pairwright.schemas.training import DpoConfig, TrainConfig
from pairwright.tasks.training.freeze_rows import Needs

if TYPE_CHECKING:
    from torch import Tensor

CHOSEN, IMAGE, TEXTS = 0, 1, 2
SWAPPED, EXCHANGED = TEXTS + 1, TEXTS + 2
"""Columns of SymMPO: the text of the other order, given the prompt's images, and given its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Log-probabilities of a batch's answers under a model."""

    # (B, A) float32: sums over each answer's tokens, end token included; 0 where absent
    logps: "Tensor"
    tokens: "Tensor"  # (B, A) int64: numbers of tokens; 0 where absent

    @property
    def present(self) -> "Tensor":
        """Return (B, A) bool: which answers exist."""
        return self.tokens > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Loss of a batch, with metrics."""

    value: "Tensor"  # scalar with gradient; 0 (with zero gradients) where no example counts
    # detached means over the examples that define the metric; omitted where none does
    metrics: "dict[str, Tensor]"
    counts: "dict[str, float]"  # number of examples (for ``nll``, tokens) behind each mean


Logged = Mapping[str, tuple["Tensor", "Tensor"]]
"""Per metric its values (B,), and a mask (B,) of the examples that define it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewards:
    """beta (log pi - log pi_ref) of answers; 0 where absent; K >= 1 rejected texts."""

    chosen: "Tensor"  # (B,)
    image: "Tensor"  # (B,): chosen text, given the rejected images
    texts: "Tensor"  # (B, K)
    # (B,) bool: whether the chosen text can be ranked above itself given the rejected images
    has_image: "Tensor"
    has_texts: "Tensor"  # (B, K) bool: which rejected texts can be ranked below a chosen one
    # (B, 2 + K): summed log-probabilities under the policy, detached; 0 where absent
    logps: "Tensor"


def rewards_of(
    policy: Scored,
    reference: Scored,
    *,
    beta: float,
    texts: int | None = 1,
    per_token: bool = False,
) -> Rewards:
    """Return rewards of the chosen text, with its and with rejected images, and of rejected texts.

    ``texts``: the number of rejected texts; ``None``: all. ``per_token``: log-ratios are divided by
    the answers' tokens. These are the implicit rewards of
    Rafailov et al. 2023 (paper 004, Eq. 4) without their constant, beta log Z of the prompt and its
    images. Between texts of the same images it cancels. Between images it does not: each has a
    partition function of its own, which mDPO and AdaViP leave out. The reference gets no gradient.
    """
    policy = _with_columns(policy, texts)
    reference = _with_columns(reference, texts)
    present = policy.present
    log_ratios = policy.logps - reference.logps.detach()
    if per_token:
        log_ratios = log_ratios / policy.tokens.clamp(min=1)
    values = beta * log_ratios.where(present, 0)
    chosen = present[:, CHOSEN]
    return Rewards(
        chosen=values[:, CHOSEN],
        image=values[:, IMAGE],
        texts=values[:, TEXTS:],
        has_image=chosen & present[:, IMAGE],
        has_texts=chosen[:, None] & present[:, TEXTS:],
        logps=policy.logps.detach().where(present, 0),
    )


def _with_columns(scored: Scored, texts: int | None) -> Scored:
    """Return ``texts`` columns of rejected texts, padded with absent ones; ``None``: all."""
    from torch.nn.functional import pad

    last = None if texts is None else TEXTS + texts
    logps = scored.logps[:, :last]
    tokens = scored.tokens[:, :last]
    missing = max(0, TEXTS + (texts or 1) - logps.shape[1])
    padding = (0, missing)
    return Scored(logps=pad(logps, padding), tokens=pad(tokens, padding))


def surprise(margins: "Tensor") -> "Tensor":
    """Return -log sigmoid(margin): near 0 for large margins, near -margin for very negative."""
    from torch.nn.functional import logsigmoid

    return -logsigmoid(margins)


def rank_losses(
    chosen: "Tensor",
    rivals: "Tensor",
    present: "Tensor",
) -> "Tensor":
    """Return (B,): -log of the probability that the chosen answer beats the rivals.

    ``chosen`` is (B,), ``rivals`` and ``present`` (B, K). The loss is the cross-entropy of the
    chosen one against them (S-DPO; paper 004, Eq. 11), -log sigmoid(-log sum_l exp(r_l - r)), taken
    by logsumexp, which cannot overflow; 0 without rivals.
    """
    import torch

    # Not -inf: without rivals the gradient of logsumexp would be NaN.
    lowest = torch.finfo(rivals.dtype).min
    leads = (rivals - chosen[:, None]).masked_fill(~present, lowest)
    margins = -leads.logsumexp(1)
    return surprise(margins).where(present.any(1), 0)


def order_losses(
    chosen: "Tensor",
    rivals: "Tensor",
    present: "Tensor",
) -> "Tensor":
    """Return (B,): -log of the probability of the whole order, chosen first, then the rivals.

    ``chosen`` is (B,), ``rivals`` and ``present`` (B, K), best first. It is the Plackett-Luce model
    of Rafailov et al. 2023, Eq. 20: the sum over ranks of -log softmax among the answers not yet
    ranked; 0 without rivals.
    """
    import torch

    rewards = torch.cat([chosen[:, None], rivals], 1)
    lowest = torch.finfo(rivals.dtype).min  # not -inf, whose gradient would be NaN
    counts = torch.cat([present.any(1)[:, None], present], 1)
    scores = rewards.masked_fill(~counts, lowest)
    remaining = scores.flip(1).logcumsumexp(1).flip(1)
    return (remaining - scores).where(counts, 0).sum(1)


def margin_losses(margins: "Tensor", config: DpoConfig) -> "Tensor":
    """Return the loss of each margin of rewards.

    DPO's -log sigmoid(m); IPO's (m / beta - 1 / (2 beta))^2 (Azar et al. 2024, Eq. 17); SLiC's
    max(0, 1 - m) (Zhao et al. 2023, with rewards as in Liu et al. 2024, "Statistical Rejection
    Sampling Improves Preference Optimization").
    """
    if config.loss_type == "ipo":
        return ((margins - 0.5) / config.beta).square()
    if config.loss_type == "hinge":
        return (1 - margins).clamp(min=0)
    return surprise(margins)


def loss_of(
    per_example: "Tensor",
    counts: "Tensor",
    logged: Logged,
) -> Loss:
    """Return the mean of (B,) losses over the examples that count, (B,) bool.

    It is 0, with zero gradients, if none counts.
    """
    metrics, examples = _average(logged)
    counted = per_example.where(counts, 0)
    value = counted.sum() / counts.sum().clamp(min=1)
    return Loss(value=value, metrics=metrics, counts=examples)


def _average(logged: Logged) -> tuple[dict[str, "Tensor"], dict[str, float]]:
    """Return the means of the metrics that an example defines, and their numbers of examples."""
    import torch

    masks = torch.stack([mask for _, mask in logged.values()])
    values = torch.stack([value.detach() for value, _ in logged.values()])
    sizes = masks.sum(1)
    means = values.where(masks, 0).sum(1) / sizes.clamp(min=1)
    numbers = sizes.tolist()  # the only device sync
    metrics: dict[str, Tensor] = {}
    examples: dict[str, float] = {}
    for name, mean, number in zip(logged, means, numbers, strict=True):
        if number:
            metrics[name] = mean
            examples[name] = float(number)
    return metrics, examples


def log_preferences(rewards: Rewards) -> Logged:
    """Return the metrics of all preference losses.

    ``reward/rejected``, ``margin`` and ``logp/rejected`` are means over an example's rejected
    texts; ``accuracy`` is the share of examples whose chosen text has a larger reward than each of
    them; a tie, as of equal models, counts half.
    """
    has_texts = rewards.has_texts
    has_image = rewards.has_image
    has_text = has_texts.any(1)
    counts = has_text | has_image

    def mean_of(values: "Tensor") -> "Tensor":  # over an example's rejected texts; 0 without any
        sums = values.where(has_texts, 0).sum(1)
        return sums / has_texts.sum(1).clamp(min=1)

    def wins(margins: "Tensor") -> "Tensor":
        return (margins.sign() + 1) / 2

    rejected = mean_of(rewards.texts)
    image_margin = rewards.chosen - rewards.image
    best = rewards.texts.where(has_texts, -float("inf")).amax(1)
    return {
        "reward/chosen": (rewards.chosen, counts),
        "reward/rejected": (rejected, has_text),
        "reward/image": (rewards.image, has_image),
        "margin": (rewards.chosen - rejected, has_text),
        "margin/image": (image_margin, has_image),
        "accuracy": (wins(rewards.chosen - best), has_text),
        "accuracy/image": (wins(image_margin), has_image),
        "logp/chosen": (rewards.logps[:, CHOSEN], counts),
        "logp/rejected": (mean_of(rewards.logps[:, TEXTS:]), has_text),
    }


def sft(policy: Scored, *, by_example: bool = False) -> Loss:
    """Return the mean of -log pi(chosen) over the batch's tokens, or over its examples' means.

    Of a conversation, the chosen text is all of its answers. Logs ``nll``, per token in both cases,
    and ``logp/chosen``.
    """
    counts = policy.present[:, CHOSEN]
    logps = policy.logps[:, CHOSEN]
    tokens = policy.tokens[:, CHOSEN]
    # n log p / (tokens of the batch): its mean over the n examples is the mean over tokens.
    per_batch = -logps * counts.sum() / tokens.sum().clamp(min=1)
    per_example = -logps / tokens.clamp(min=1) if by_example else per_batch
    logged = {"nll": (per_batch, counts), "logp/chosen": (logps, counts)}
    loss = loss_of(per_example, counts, logged)
    if "nll" not in loss.counts:
        return loss
    return replace(loss, counts={**loss.counts, "nll": float(tokens.sum())})


def dpo(
    policy: Scored,
    reference: Scored,
    config: DpoConfig,
) -> Loss:
    """Return the mean loss of ranking the chosen text above the rejected ones.

    With K rejected texts it is -log of the probability that the chosen one is first (S-DPO, Chen et
    al. 2024); for K = 1, -log sigmoid(margin). ``config`` may ask for other losses of a margin, of
    which the mean over the rejected texts is taken (ours), or for the whole order. Without a
    rejected text, the chosen text is ranked above itself given the rejected images; an example
    without either does not count.
    """
    from torch import cat

    rewards = rewards_of(
        policy,
        reference,
        beta=config.beta,
        texts=config.max_negatives,
        per_token=config.length_normalised,
    )
    alone = rewards.has_image & ~rewards.has_texts.any(1)
    rivals = cat([rewards.image[:, None], rewards.texts], 1)
    present = cat([alone[:, None], rewards.has_texts], 1)
    if config.ranking == "plackett_luce":
        losses = order_losses(rewards.chosen, rivals, present)
    elif config.loss_type == "sigmoid":
        losses = rank_losses(rewards.chosen, rivals, present)
    else:
        each = margin_losses(rewards.chosen[:, None] - rivals, config).where(present, 0)
        losses = each.sum(1) / present.sum(1).clamp(min=1)
    return loss_of(losses, present.any(1), log_preferences(rewards))


def mdpo(
    policy: Scored,
    reference: Scored,
    config: settings.MdpoConfig,
) -> Loss:
    """Return the mean of DPO on the rejected text, DPO on the rejected images and the anchor.

    The anchor is -log sigmoid(r++); without it the loss is the "+ Vision" of paper 004, Table 2. An
    example with a single rejected side has plain DPO on it, without the anchor (ours), as in the
    other objectives; one with none does not count. Further rejected texts are ignored.
    """
    rewards = rewards_of(policy, reference, beta=config.beta)
    has_text = rewards.has_texts[:, 0]
    has_image = rewards.has_image
    text_margins = rewards.chosen - rewards.texts[:, 0]
    image_margins = rewards.chosen - rewards.image
    per_text = surprise(text_margins).where(has_text, 0)
    per_image = surprise(image_margins).where(has_image, 0)
    anchor = surprise(rewards.chosen).where(has_text & has_image, 0)
    losses = per_text + per_image
    if config.anchor:
        losses = losses + anchor
    return loss_of(losses, has_text | has_image, log_preferences(rewards))


def adavip(
    policy: Scored,
    reference: Scored,
    config: settings.AdavipConfig,
) -> Loss:
    """Return the mean cross-entropy of the chosen text against the rejected text and images.

    With rewards r++, r+- (rejected text) and r-+ (chosen text, given the rejected images) it is Eq.
    11, -log sigmoid(-log(exp(r+- - r++) + exp(r-+ - r++))). An example with one rejected side has
    plain DPO on it, one with none does not count; further rejected texts are ignored. The weights
    of Eq. 13 are logged for examples with both sides.
    """
    from torch import cat, stack

    rewards = rewards_of(policy, reference, beta=config.beta)
    has_text = rewards.has_texts[:, 0]
    has_image = rewards.has_image
    rivals = cat([rewards.texts, rewards.image[:, None]], 1)
    present = stack([has_text, has_image], 1)
    # Eq. 13: the shares of the two rejected sides in the gradient.
    lead = rewards.texts[:, 0] - rewards.image
    both = has_text & has_image
    weights = {
        "weight/text": (lead.sigmoid(), both),
        "weight/image": ((-lead).sigmoid(), both),
    }
    losses = rank_losses(rewards.chosen, rivals, present)
    return loss_of(losses, present.any(1), {**log_preferences(rewards), **weights})


def symmpo(
    policy: Scored,
    reference: Scored,
    config: settings.SymmpoConfig,
) -> Loss:
    """Return the mean of DPO on the rejected text, and on the texts of both orders of the images.

    Of a pair (a, b) with the text y, and of (b, a) with the text s, the symmetric terms are
    -log sigmoid(r(y | a, b) - r(s | a, b)) and -log sigmoid(r(s | b, a) - r(y | b, a)): texts under
    the same images, whose partition function cancels. Beside them are the square of the difference
    of both margins (without beta, as in the authors' code) and the anchors of both chosen texts.
    An example without a text of the other order has plain DPO on its rejected text (ours).
    """
    rewards = rewards_of(policy, reference, beta=config.beta, texts=EXCHANGED - TEXTS + 1)
    rejected, swapped, exchanged = rewards.texts.unbind(1)
    has_text, *has_orders = rewards.has_texts.unbind(1)
    has_both = rewards.has_image & has_orders[0] & has_orders[1]
    margin = rewards.chosen - swapped
    other_margin = exchanged - rewards.image
    symmetric = surprise(margin) + surprise(other_margin)
    gap = (margin - other_margin) / config.beta
    terms = config.symmetric_weight * symmetric + config.consistency_weight * gap.square()
    if config.anchor:
        terms = terms + surprise(rewards.chosen) + surprise(exchanged)
    losses = surprise(rewards.chosen - rejected).where(has_text, 0) + terms.where(has_both, 0)
    ranked = replace(
        rewards,
        texts=rewards.texts[:, :2],
        has_texts=rewards.has_texts[:, :2],
        logps=rewards.logps[:, : TEXTS + 2],
    )
    logged = {
        **log_preferences(ranked),
        "margin/exchanged": (other_margin, has_both),
        "accuracy/exchanged": ((other_margin.sign() + 1) / 2, has_both),
    }
    return loss_of(losses, has_text | has_both, logged)


def adpo(
    policy: Scored,
    reference: Scored,
    config: settings.AdpoConfig,
) -> Loss:
    """Return the mean of -log sigmoid(M) over the m sampled negatives (Eq. 5).

    They are all columns from ``TEXTS`` on. Rejected images are ignored. An example without a
    negative does not count.
    """
    rewards = rewards_of(policy, reference, beta=config.beta, texts=None)
    has_texts = rewards.has_texts
    margins = rewards.chosen[:, None] - rewards.texts
    losses = surprise(margins).where(has_texts, 0)
    per_example = losses.sum(1) / has_texts.sum(1).clamp(min=1)
    logged = log_preferences(rewards)
    logged = {name: value for name, value in logged.items() if not name.endswith("/image")}
    return loss_of(per_example, has_texts.any(1), logged)


def negative_rewards(
    policy: Scored,
    reference: Scored,
    config: settings.AdpoConfig,
) -> "Tensor":
    """Return (B, m), detached: the retriever's reward of each negative; NaN where absent.

    It is R = -log sigmoid(M).
    """
    rewards = rewards_of(policy, reference, beta=config.beta, texts=None)
    margins = rewards.chosen[:, None] - rewards.texts  # M of Eq. 4
    losses = surprise(margins).detach()
    return losses.where(rewards.has_texts, float("nan"))


def retriever_loss(
    log_q: "Tensor",
    rewards: "Tensor",
    baseline: float,
) -> "Tensor":
    """Return -mean[(R - b) log q], whose expected gradient is that of -E[R] (Eq. 7, REINFORCE).

    ``log_q`` and ``rewards``, of ``negative_rewards`` (NaN is left out), are (B, m). ``baseline``
    is b of an example with one sample; the paper's is 0. With more samples, each one's b is the
    mean of the example's others, which leaves the expected gradient unchanged, as draws are
    independent (ours).
    """
    present = ~rewards.isnan()
    rewards = rewards.detach().where(present, 0)
    drawn = present.sum(1, keepdim=True)
    sums = rewards.sum(1, keepdim=True) - rewards
    others = sums / (drawn - 1).clamp(min=1)
    baselines = others.where(drawn > 1, baseline)
    advantages = (rewards - baselines).where(present, 0)
    weighted = advantages * log_q.where(present, 0)
    samples = drawn[:, 0].clamp(min=1)
    per_pair = -weighted.sum(1) / samples
    pairs = present.any(1).sum().clamp(min=1)
    return per_pair.sum() / pairs


LOSSES: dict[str, Callable[[Scored, Scored, Any], Loss]] = {
    "dpo": dpo,
    "mdpo": mdpo,
    "adavip": adavip,
    "symmpo": symmpo,
    "adpo": adpo,
}
"""Preference losses: of the policy, the reference, and the objective's section of the settings."""
NEEDS: dict[str, Needs] = {
    "sft": Needs(every_answer=True),
    "dpo": Needs(
        texts=1,
        images=True,
        beside=False,
        rejected_side=True,
    ),
    "mdpo": Needs(texts=1, images=True, rejected_side=True),
    "adavip": Needs(texts=1, images=True, rejected_side=True),
    "symmpo": Needs(texts=1, exchanged=True, rejected_side=True),
    "adpo": Needs(),  # its retriever draws the negatives
    "grpo": Needs(),
    "namc": Needs(),
}


def count_columns(needs: Needs) -> int:
    """Return A, the number of columns of the answers that a run needs."""
    return EXCHANGED + 1 if needs.exchanged else TEXTS + needs.texts


def compute_loss(
    policy: Scored,
    reference: Scored | None,
    config: TrainConfig,
) -> Loss:
    """Return the loss of a run's objective, with the settings of its own section.

    A preference loss gets ``sft_weight`` times the chosen text's negative log-likelihood per token,
    averaged over examples (RPO; Pang et al. 2024, "Iterative Reasoning Preference Optimization",
    Eq. 1); ``nll`` is always logged.
    """
    compare = LOSSES.get(config.objective)
    if compare is None:
        return sft(policy)
    assert reference is not None
    loss = compare(policy, reference, getattr(config, config.objective))
    likelihood = sft(policy, by_example=True)
    value = loss.value
    if config.sft_weight:
        value = value + config.sft_weight * likelihood.value
    return Loss(
        value=value,
        metrics={**likelihood.metrics, **loss.metrics},
        counts={**likelihood.counts, **loss.counts},
    )


def needs_of(config: TrainConfig) -> Needs:
    """Return a run's needs of each row."""
    accepted = config.data.split if config.data.only_accepted else ""
    needs = replace(
        NEEDS[config.objective], pairs=config.model.differential.enabled, accepted=accepted
    )
    if config.objective == "dpo":
        needs = replace(needs, texts=config.dpo.max_negatives)
    return needs


def measures_of(config: TrainConfig) -> Needs:
    """Return the needs of each held-out row: for ADPO also the row's own rejected text."""
    needs = needs_of(config)
    texts = 1 if config.objective == "adpo" else needs.texts
    return replace(needs, texts=texts, rejected_side=False)
