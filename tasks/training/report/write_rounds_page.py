"""Write the page of an iterated training, DIR/runs/NAME/index.html: rounds and their scores.

Like a run's page it opens from disk. The rounds are the runs NAME-0 (SFT), NAME-1, ... beside its
folder.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pairwright.tasks.pages.charts import Chart, Line, Proportion, draw_lines
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

    def cells(self, *, is_kept: bool) -> list[str]:
        """Return its cells of the table."""
        interval = " to ".join(show_value(end, percent=True) for end in self.interval)
        unread = "" if self.unreadable is None else show_value(self.unreadable, percent=True)
        cells = [
            self.run,
            self.start,
            str(self.version),
            self.written,
            show_value(self.value, percent=self.percent),
            interval,
            f"{self.items:,}",
            unread,
            "yes" if is_kept else "no: worse",
        ]
        return [cell or "-" for cell in cells]


def keep_rounds(worths: Sequence[float]) -> list[bool]:
    """Return which rounds are kept: those not worse than any kept one before."""
    verdicts = list[bool]()
    best = float("-inf")
    for worth in worths:
        verdicts.append(bool(worth >= best))
        best = max(best, worth)
    return verdicts


def write_rounds_page(folder: Path, rounds: Sequence[Round], *, measure: str) -> Path:
    """Rewrite the page, and return its path."""
    verdicts = keep_rounds([finished.worth for finished in rounds])
    rows = [
        finished.cells(is_kept=is_kept) for finished, is_kept in zip(rounds, verdicts, strict=True)
    ]
    chart = _draw_rounds(rounds, rows, measure)
    folder.mkdir(parents=True, exist_ok=True)
    copy_looks(folder, [HERE / "run.css"])
    template = make_environment(HERE).get_template("rounds.html.j2")
    page = template.render(
        subject={"name": folder.name},
        chart=chart,
        heads=HEADS,
        rows=rows,
        kept=verdicts,
        measure=measure,
    )
    write_page(folder / "index.html", page)
    return folder / "index.html"


def _draw_rounds(rounds: Sequence[Round], rows: Sequence[Sequence[str]], measure: str) -> Chart:
    """Draw the held-out values of the rounds, with their intervals."""
    positions = np.arange(len(rounds), dtype=np.float64)
    values = np.array([finished.value for finished in rounds])
    spans = [np.array(finished.interval or (finished.value,) * 2) for finished in rounds]
    dots = [f"{row[0]}: {row[4]} ({row[5]})" for row in rows]
    lines = [
        Line(name="interval", x=np.full(2, position), y=span, tone="plain")
        for position, span in zip(positions, spans, strict=True)
    ]
    lines.append(Line(name=measure, x=positions, y=values, tone="plain", dots=dots))
    percent = rounds[0].percent
    return draw_lines(
        lines,
        title="Held out",
        unit="by round, with its 95 % interval" if percent else "by round",
        ends=(0.0, max(float(positions[-1]), 3.0)),
        reach=(0.0, float(np.max(spans))),
        percent=percent,
        legend=[("plain", measure, "")],
        heads=("run", "held out", "interval"),
        rows=[(row[0], row[4], row[5]) for row in rows],
        summary=f"{measure}. {'; '.join(dots)}",
    )
