"""Find problems of a run in its metrics: for its page, and to stop a run whose model collapses.

Stops depend on measurements of the same held-out rows each time, free of batch noise: the chosen
texts' negative log-likelihood per token, and the share of unreadable answers.
"""

from collections.abc import Iterator

from pairwright.schemas.training import TrainConfig
from pairwright.tasks.pages.charts import Proportion
from pairwright.tasks.training.report.draw_run import Metrics, smooth
from pairwright.tasks.training.runs import HELD_OUT, RANKED, UNREADABLE

LEAST = 10  # logged values needed to judge a trend
RISE = 1.05  # limit of the last held-out loss, in multiples of the lowest
# Collapse: the chosen texts' loss per token rises by this factor, and by so many nats.
COLLAPSE_RATIO = 2.0
COLLAPSE_NATS = 0.2
# Collapse: this share of answers is unreadable, and so much more than at the start.
UNREADABLE_SHARE = 0.5
UNREADABLE_RISE = 0.25
EQUAL_SHARE = 0.8  # share of groups with equal rewards from which little is learnt
Alarm = tuple[str, str]  # name and advice


def held_out_accuracy(metrics: Metrics) -> Proportion | None:
    """Return the final held-out accuracy, as a proportion of ranked preferences."""
    accuracy = metrics.final("accuracy", HELD_OUT)
    rows = metrics.final(RANKED, HELD_OUT)
    if accuracy is None or not rows:
        return None
    return Proportion(accuracy * rows, round(rows))


def say_proportion(share: Proportion) -> str:
    """Return a proportion in words, with its 95 % interval."""
    low, high = share.interval()
    return f"{share.value:.0%} of {share.of:,} ({low:.0%} to {high:.0%})"


def find_alarms(metrics: Metrics, config: TrainConfig) -> Iterator[Alarm]:
    """Yield problems, the most serious first."""
    yield from _find_infinite(metrics)
    yield from find_collapse(metrics, config)
    if config.objective == "grpo":  # whose loss says nothing of how good the answers are
        yield from _find_rewards(metrics)
        return
    yield from _find_losses(metrics)
    ranked = held_out_accuracy(metrics)
    if ranked and metrics.last and ranked.interval()[0] <= 0.5:
        yield (
            "Held-out accuracy may be chance",
            f"The chosen text has the larger reward for {say_proportion(ranked)}.",
        )
    chosen = metrics.curve("reward/chosen")
    if len(chosen) < LEAST:
        return
    last = smooth(chosen)[-1, 1]
    if last < 0:
        yield (
            "The chosen texts become less likely",
            f"Their reward is {last:.3g} at the end: the margin grows because the rejected texts "
            f"fall faster. That is common with preference losses. {_advise(config)}",
        )


def _find_infinite(metrics: Metrics) -> Iterator[Alarm]:
    """Yield an alarm if metrics have values that are not drawn."""
    names = set[str]()
    for (split, name), logged in metrics.points.items():
        if len(metrics.curve(name, split)) < len(logged):
            names.add(name)
    if names:
        yield (
            "Not a number",
            f"{', '.join(sorted(names))} had NaN or infinite values; charts leave them out.",
        )


def _find_rewards(metrics: Metrics) -> Iterator[Alarm]:
    """Yield an alarm for groups whose answers all have the same reward, and one for its fall."""
    equal = metrics.curve("reward/equal groups")
    rewards = metrics.curve("reward")
    if len(equal) < LEAST or len(rewards) < LEAST:
        return
    share = smooth(equal)[-1, 1]
    if share > EQUAL_SHARE:
        yield (
            "Answers do not differ in reward",
            f"In {share:.0%} of groups all answers have the same reward: nothing is learnt from "
            "them. Start from a model that answers at all (--from a run of sft), or raise "
            "grpo.num_generations or grpo.temperature.",
        )
    third = len(rewards) // 3
    first = rewards[:third, 1].mean()
    last = rewards[-third:, 1].mean()
    if last < first:
        yield (
            "The reward falls",
            f"It was {first:.3g} in the first third of the steps and is {last:.3g} in the last. "
            "Lower optimiser.learning_rate, or raise grpo.beta.",
        )


def _find_losses(metrics: Metrics) -> Iterator[Alarm]:
    """Yield an alarm for a loss that does not fall, and for a held-out loss that rises."""
    loss = metrics.curve("loss")
    if len(loss) >= LEAST:
        first = loss[0, 1]
        last = smooth(loss)[-1, 1]
        if last >= first:
            yield (
                "The loss does not fall",
                f"It was {first:.3g} at step {loss[0, 0]:.0f} and is {last:.3g} at the end, "
                "smoothed. Look at the learning rate (optimiser.learning_rate), and at a few rows "
                "by eye.",
            )
    held_out = metrics.curve("loss", HELD_OUT)
    if len(held_out) < 3:
        return
    lowest = held_out[:, 1].min()
    last = held_out[-1, 1]
    if last > lowest + (RISE - 1) * abs(lowest):
        step = held_out[held_out[:, 1].argmin(), 0]
        yield (
            "The held-out loss rises",
            f"It was lowest at step {step:.0f} with {lowest:.3g} and ends at {last:.3g}: the model "
            "overfits the training split. Reduce optimiser.num_train_epochs, or add rows.",
        )


def find_collapse(metrics: Metrics, config: TrainConfig) -> Iterator[Alarm]:
    """Yield signs that the model loses what it knew at the start of the run."""
    nll = metrics.curve("nll", HELD_OUT)[:, 1]
    if len(nll) > 1 and nll[-1] > COLLAPSE_RATIO * nll[0] and nll[-1] > nll[0] + COLLAPSE_NATS:
        yield (
            "The model forgets the held-out chosen texts",
            f"Their loss per token was {nll[0]:.3g} and is {nll[-1]:.3g}. {_advise(config)}",
        )
    unreadable = metrics.curve(UNREADABLE, HELD_OUT)[:, 1]
    if len(unreadable) < 2:
        return
    if unreadable[-1] > max(UNREADABLE_SHARE, unreadable[0] + UNREADABLE_RISE):
        yield (
            "Answers cannot be read",
            f"{unreadable[-1]:.0%} of answers to some held-out rows are empty, cut off or off the "
            f"chosen text's template, up from {unreadable[0]:.0%}. {_advise(config)}",
        )


def _advise(config: TrainConfig) -> str:
    """Return which settings to change."""
    if config.objective == "sft":
        return "Lower optimiser.learning_rate."
    weight = f"Raise sft_weight (now {config.sft_weight:g})"
    return f"{weight}, raise {config.objective}.beta, or lower optimiser.learning_rate."
