"""Find problems of a run in its metrics: for its page, and to stop a run whose model collapses.

Stops depend on measurements of the same held-out rows each time, free of batch noise: the chosen
texts' negative log-likelihood per token, and the share of unreadable answers.
"""

from collections.abc import Iterator

import numpy as np

from pairwright.schemas.training import TrainConfig
from pairwright.tasks.pages.charts import Proportion
from pairwright.tasks.training.report.draw_run import Metrics, smooth
from pairwright.tasks.training.runs import HELD_OUT, RANKED, UNREADABLE

LEAST = 10  # logged values needed to judge a trend
RISE = 1.05  # limit of the last held-out loss, in multiples of the lowest
WORSE, NATS = (
    2.0,
    0.2,
)  # collapse: the chosen texts' loss per token rises by this factor and by so many nats
UNREAD, MORE = (
    0.5,
    0.25,
)  # collapse: this share of answers is unreadable, and so much more than at the start
Alarm = tuple[str, str]  # name and advice


def held_out_accuracy(metrics: Metrics) -> Proportion | None:
    """Return the final held-out accuracy, as a proportion of ranked preferences."""
    right, rows = metrics.final("accuracy", HELD_OUT), metrics.final(RANKED, HELD_OUT)
    return Proportion(right * rows, round(rows)) if right is not None and rows else None


def say_proportion(share: Proportion) -> str:
    """Return a proportion in words, with its 95 % interval."""
    low, high = share.interval()
    return f"{share.value:.0%} of {share.of:,} ({low:.0%} to {high:.0%})"


def find_alarms(metrics: Metrics, config: TrainConfig) -> Iterator[Alarm]:
    """Yield problems, the most serious first."""
    counts = {(split, name): len(logged) for (split, name), logged in metrics.points.items()}
    if lost := sorted(
        {name for (split, name), count in counts.items() if len(metrics.of(name, split)) < count}
    ):
        yield (
            "Not a number",
            f"{', '.join(lost)} had NaN or infinite values; charts leave them out.",
        )
    yield from find_collapse(metrics, config)
    loss, held_out = metrics.of("loss"), metrics.of("loss", HELD_OUT)
    if len(loss) >= LEAST and (last := smooth(loss)[-1, 1]) >= (first := loss[0, 1]):
        yield (
            "The loss does not fall",
            f"It was {first:.3g} at step {loss[0, 0]:.0f} and is {last:.3g} at the end, smoothed. Look at the "
            "learning rate (optimiser.learning_rate), and at a few rows by eye.",
        )
    lowest = held_out[:, 1].min(initial=np.inf)
    if len(held_out) >= 3 and (last := held_out[-1, 1]) > lowest + (RISE - 1) * abs(lowest):
        yield (
            "The held-out loss rises",
            f"It was lowest at step {held_out[held_out[:, 1].argmin(), 0]:.0f} with {lowest:.3g} and ends at "
            f"{last:.3g}: the model overfits the training split. Reduce "
            "optimiser.num_train_epochs, or add rows.",
        )
    if (ranked := held_out_accuracy(metrics)) and metrics.last and ranked.interval()[0] <= 0.5:
        yield (
            "Held-out accuracy may be chance",
            f"The chosen text has the larger reward for {say_proportion(ranked)}.",
        )
    chosen = metrics.of("reward/chosen")
    if len(chosen) >= LEAST and (last := smooth(chosen)[-1, 1]) < 0:
        yield (
            "The chosen texts become less likely",
            f"Their reward is {last:.3g} at the end: the margin grows because the rejected texts fall faster. That is "
            f"common with preference losses. {_advise(config)}",
        )


def find_collapse(metrics: Metrics, config: TrainConfig) -> Iterator[Alarm]:
    """Yield signs that the model loses what it knew at the start of the run."""
    nll, unread = metrics.of("nll", HELD_OUT)[:, 1], metrics.of(UNREADABLE, HELD_OUT)[:, 1]
    if len(nll) > 1 and nll[-1] > WORSE * nll[0] and nll[-1] > nll[0] + NATS:
        yield (
            "The model forgets the held-out chosen texts",
            f"Their loss per token was {nll[0]:.3g} and is {nll[-1]:.3g}. {_advise(config)}",
        )
    if len(unread) > 1 and unread[-1] > max(UNREAD, unread[0] + MORE):
        yield (
            "Answers cannot be read",
            f"{unread[-1]:.0%} of answers to some held-out rows are empty, cut off or off the chosen text's template, "
            f"up from {unread[0]:.0%}. {_advise(config)}",
        )


def _advise(config: TrainConfig) -> str:
    if config.objective == "sft":
        return "Lower optimiser.learning_rate."
    weight = f"Raise sft_weight (now {config.sft_weight:g})"
    return f"{weight}, raise {config.objective}.beta, or lower optimiser.learning_rate."
