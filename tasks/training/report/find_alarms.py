"""Find what is wrong with a run in its metrics: for its page, and to stop one that unlearns what it knew.

What stops a run is measured on the same held-out rows each time, so that no noise of batches is in it: the chosen
texts' negative log-likelihood per token, and the share of answers that cannot be read.
"""

from collections.abc import Iterator

import numpy as np

from pairwright.schemas.training import TrainConfig
from pairwright.tasks.pages.charts import Proportion
from pairwright.tasks.training.report.draw_run import Metrics, smooth
from pairwright.tasks.training.runs import HELD_OUT, RANKED, UNREADABLE

LEAST = 10
"""Logged values before their course means something."""
RISE = 1.05
"""Times its lowest that the held-out loss may end at."""
WORSE, NATS = 2.0, 0.2
"""The chosen texts are unlearnt where their loss per token is so many times that of the start, and so much more."""
UNREAD, MORE = 0.5, 0.25
"""So many of the answers cannot be read, and so many more than at the start."""
Alarm = tuple[str, str]
"""Name, and what to do."""


def held_out_accuracy(metrics: Metrics) -> Proportion | None:
    """Return the last share of held-out preferences that are ranked as they should be, of how many."""
    right, rows = metrics.final("accuracy", HELD_OUT), metrics.final(RANKED, HELD_OUT)
    return Proportion(right * rows, round(rows)) if right is not None and rows else None


def say_proportion(share: Proportion) -> str:
    """Return a proportion in words, with the interval that holds the true one 19 times in 20."""
    low, high = share.interval()
    return f"{share.value:.0%} of {share.of:,} ({low:.0%} to {high:.0%})"


def find_alarms(metrics: Metrics, config: TrainConfig) -> Iterator[Alarm]:
    """Yield what looks wrong, the gravest first."""
    if lost := sorted({name for (_, name), points in metrics.points.items() if len(points.finite()) < len(points)}):
        yield "Not a number", f"{', '.join(lost)} had values that are no finite numbers; charts leave them out."
    yield from find_collapse(metrics, config)
    loss, held_out = metrics.of("loss"), metrics.of("loss", HELD_OUT)
    if len(loss) >= LEAST and (last := float(smooth(loss).values[-1])) >= (first := float(loss.values[0])):
        yield (
            "The loss does not fall",
            f"It was {first:.3g} at step {loss.steps[0]:.0f} and is {last:.3g} at the end, smoothed. Look at the "
            "learning rate (optimiser.learning_rate), and at a few rows by eye.",
        )
    lowest = float(held_out.values.min(initial=np.inf))
    if len(held_out) >= 3 and (last := float(held_out.values[-1])) > lowest + (RISE - 1) * abs(lowest):
        yield (
            "The held-out loss rises",
            f"It was lowest at step {held_out.steps[held_out.values.argmin()]:.0f} with {lowest:.3g} and ends at "
            f"{last:.3g}: what is learnt since then is the training split by heart. Fewer optimiser.num_train_epochs, "
            "or more rows.",
        )
    if (ranked := held_out_accuracy(metrics)) and metrics.last and ranked.interval()[0] <= 0.5:
        yield (
            "Held-out preferences may be ranked by chance",
            f"The chosen text has the larger reward for {say_proportion(ranked)}.",
        )
    chosen = metrics.of("reward/chosen")
    if len(chosen) >= LEAST and (last := float(smooth(chosen).values[-1])) < 0:
        yield (
            "The chosen texts become less likely",
            f"Their reward is {last:.3g} at the end: the margin grows because the rejected texts fall faster. That is "
            f"common with preference losses. {_advise(config)}",
        )


def find_collapse(metrics: Metrics, config: TrainConfig) -> Iterator[Alarm]:
    """Yield how the model unlearns what it knew as the run began."""
    nll, unread = metrics.of("nll", HELD_OUT).values, metrics.of(UNREADABLE, HELD_OUT).values
    if len(nll) > 1 and nll[-1] > WORSE * nll[0] and nll[-1] > nll[0] + NATS:
        yield (
            "The held-out chosen texts are unlearnt",
            f"Their loss per token was {nll[0]:.3g} and is {nll[-1]:.3g}. {_advise(config)}",
        )
    if len(unread) > 1 and unread[-1] > max(UNREAD, unread[0] + MORE):
        yield (
            "Answers cannot be read",
            f"Of some held-out rows, {unread[-1]:.0%} are empty, cut off or off the template that the chosen text "
            f"keeps; it was {unread[0]:.0%}. {_advise(config)}",
        )


def _advise(config: TrainConfig) -> str:
    if config.objective == "sft":
        return "A lower optimiser.learning_rate helps."
    weight = f"a larger sft_weight (it is {config.sft_weight:g})"
    return f"What holds them: {weight}, a larger {config.objective}.beta, or a lower optimiser.learning_rate."
