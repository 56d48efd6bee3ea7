"""Write the page of an iterated training, DIR/runs/NAME/index.html: its rounds, their scores, which are kept.

Like a run's page it opens from disk. The rounds are the runs NAME-0 (SFT), NAME-1, ... beside its
folder.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pairwright.tasks.pages.charts import Line, Proportion, draw_lines
from pairwright.tasks.pages.environment import copy_looks, make_environment, write_page
from pairwright.tasks.training.report.draw_run import show_value

HERE = Path(__file__).parent
HEADS = ("run", "from", "version", "written", "held out", "interval", "of", "unreadable", "kept")


@dataclass(frozen=True, kw_only=True)
class Round:
    """Finished round: its run, the texts written before it, and its model's held-out score."""

    run: str
    start: str  # the run that it started from; empty: the base model
    version: int
    written: str  # outcome of text generation, in words
    value: float
    items: int
    unreadable: float | None = None
    # whether the value is the share of true answers, or the loss per token of the chosen texts
    percent: bool

    @property
    def worth(self) -> float:
        """Return the value, negated for a loss, so that more is better."""
        return self.value if self.percent else -self.value

    @property
    def interval(self) -> Sequence[float]:
        """Return the ends of a share's 95 % interval; none for a loss."""
        return Proportion(self.value * self.items, self.items).interval() if self.percent else ()

    def cells(self, *, kept: bool) -> list[str]:
        """Return its cells of the table."""
        interval = " to ".join(show_value(end, percent=True) for end in self.interval)
        unread = "" if self.unreadable is None else show_value(self.unreadable, percent=True)
        worth = [show_value(self.value, percent=self.percent), interval, f"{self.items:,}", unread]
        given = [
            self.run,
            self.start,
            str(self.version),
            self.written,
            *worth,
            "yes" if kept else "no: worse",
        ]
        return [cell or "-" for cell in given]


def keep_rounds(worths: Sequence[float]) -> list[bool]:
    """Return which rounds are kept: those not worse than any kept one before."""
    return [bool(worth >= max(worths[:place], default=worth)) for place, worth in enumerate(worths)]


def write_rounds_page(folder: Path, rounds: Sequence[Round], *, measure: str) -> Path:
    """Rewrite the page, and return its path."""
    kept = keep_rounds([one.worth for one in rounds])
    rows = [one.cells(kept=own) for one, own in zip(rounds, kept, strict=True)]
    places, values = (
        np.arange(len(rounds), dtype=np.float64),
        np.array([one.value for one in rounds]),
    )
    dots = [f"{row[0]}: {row[4]} ({row[5]})" for row in rows]
    spans = [np.array(one.interval or (one.value, one.value)) for one in rounds]
    chart = draw_lines(
        [
            *(
                Line(name="interval", x=np.full(2, at), y=own, tone="plain")
                for at, own in zip(places, spans, strict=True)
            ),
            Line(name=measure, x=places, y=values, tone="plain", dots=dots),
        ],
        title="Held out",
        unit="by round, with its 95 % interval" if rounds[0].percent else "by round",
        ends=(0.0, max(float(places[-1]), 3.0)),
        reach=(0.0, float(np.max(spans))),
        percent=rounds[0].percent,
        legend=[("plain", measure, "")],
        heads=("run", "held out", "interval"),
        rows=[(row[0], row[4], row[5]) for row in rows],
        summary=f"{measure}. {'; '.join(dots)}",
    )
    folder.mkdir(parents=True, exist_ok=True)
    copy_looks(folder, [HERE / "run.css"])
    words = {
        "subject": {"name": folder.name},
        "chart": chart,
        "heads": HEADS,
        "rows": rows,
        "kept": kept,
    }
    page = make_environment(HERE).get_template("rounds.html.j2").render(**words, measure=measure)
    write_page(folder / "index.html", page)
    return folder / "index.html"
