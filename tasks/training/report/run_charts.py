"""Choose what is drawn of a run's metrics: which belong together, what they are called, what their axes hold.

Reads ``metrics.parquet`` (step, epoch, split, name, value), which may be of a run that goes on.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pairwright.schemas.errors import StoreError
from pairwright.tasks.training.report.draw_lines import Frame, LineChart, Points, Series, draw_lines

TRAIN, HELD_OUT = "train", "held-out"
NOTHING = Points(np.zeros(0), np.zeros(0))


@dataclass(frozen=True, kw_only=True)
class Spec:
    """Say what one chart shows."""

    title: str
    unit: str
    shows: tuple[tuple[str, str, str], ...]
    """Per line: the metric's name, what it is called, its tone."""
    holds: tuple[float, ...] = ()
    percent: bool = False
    exact: bool = False
    """Whether nothing is to be smoothed."""


@dataclass(frozen=True)
class Section:
    """Be charts under one heading."""

    title: str
    lead: str
    charts: tuple[LineChart, ...]


SECTIONS: tuple[tuple[str, str, tuple[Spec, ...]], ...] = (
    (
        "Learning",
        "",
        (
            Spec(
                title="Loss",
                unit="what is minimised",
                shows=(("loss", "loss", "plain"), ("nll", "negative log-likelihood", "third")),
            ),
            Spec(
                title="Margin",
                unit="reward of the chosen less the rejected",
                shows=(("margin", "text", "chosen"), ("margin/image", "image", "third")),
                holds=(0.0,),
            ),
            Spec(
                title="Accuracy",
                unit="preferences ranked as they should be",
                shows=(("accuracy", "text", "chosen"), ("accuracy/image", "image", "third")),
                holds=(0.0, 1.0),
                percent=True,
            ),
            Spec(
                title="Rewards",
                unit="beta x log-ratio to the reference",
                shows=(
                    ("reward/chosen", "chosen", "chosen"),
                    ("reward/rejected", "rejected text", "rejected"),
                    ("reward/image", "rejected image", "third"),
                ),
                holds=(0.0,),
            ),
            Spec(
                title="Log-probabilities",
                unit="of whole answers",
                shows=(("logp/chosen", "chosen", "chosen"), ("logp/rejected", "rejected", "rejected")),
            ),
            Spec(
                title="Adaptive weights",
                unit="AdaViP, Eq. 13",
                shows=(("weight/text", "text", "rejected"), ("weight/image", "image", "third")),
                holds=(0.0, 1.0),
            ),
        ),
    ),
    (
        "The retriever",
        "It chooses negatives for each pair and is rewarded where the policy finds them likely.",
        (
            Spec(
                title="Entropy",
                unit="of its choice, next to a uniform one",
                shows=(("retriever/entropy share", "entropy", "plain"),),
                holds=(0.0, 1.0),
                percent=True,
            ),
            Spec(
                title="Effective candidates",
                unit="exp of the entropy",
                shows=(("retriever/effective", "effective", "plain"), ("retriever/candidates", "drawn", "third")),
                holds=(0.0,),
            ),
            Spec(
                title="Reward",
                unit="of the retriever",
                shows=(("retriever/reward", "reward", "plain"),),
            ),
            Spec(title="Loss", unit="of the retriever", shows=(("retriever/loss", "loss", "plain"),)),
            Spec(
                title="Doubtful negatives",
                unit="share of its choices",
                shows=(
                    ("retriever/true share", "true of their pair, where that is known", "rejected"),
                    ("retriever/most common share", "the most common text", "third"),
                ),
                holds=(0.0,),
                percent=True,
            ),
        ),
    ),
    (
        "Steps and speed",
        "",
        (
            Spec(title="Learning rate", unit="", shows=(("learning_rate", "rate", "plain"),), holds=(0.0,), exact=True),
            Spec(title="Gradient norm", unit="before it is cut", shows=(("grad_norm", "norm", "plain"),), holds=(0.0,)),
            Spec(title="Rows per second", unit="", shows=(("rows per second", "rows", "plain"),), holds=(0.0,)),
            Spec(title="Tokens per second", unit="", shows=(("tokens per second", "tokens", "plain"),), holds=(0.0,)),
            Spec(title="Memory", unit="GiB, the highest", shows=(("memory", "GiB", "plain"),), holds=(0.0,)),
        ),
    ),
)
FACTS = ("retriever/scale", "retriever/tau", "retriever/entropy")
"""Not drawn: settings that are logged, and what another chart shows in other units."""
SUMMARIES = ("train_", "total_flos")
"""Starts of the names that transformers logs once, at the end."""


@dataclass(frozen=True, eq=False)
class Metrics:
    """Hold what a run logged."""

    points: Mapping[tuple[str, str], Points]
    """By split and name."""
    last: int
    """The last step."""
    epoch: float

    def of(self, name: str, split: str = TRAIN) -> Points:
        """Return a metric's points; none gives an empty one."""
        return self.points.get((split, name), NOTHING)

    def final(self, name: str, split: str = TRAIN) -> float | None:
        """Return a metric's last value that is a number."""
        values = self.of(name, split).finite().values
        return float(values[-1]) if len(values) else None


def read_metrics(path: Path) -> Metrics:
    """Return what a run logged; no file gives none.

    Raises:
        StoreError: the file cannot be read.
    """
    if not path.is_file():
        return Metrics({}, 0, 0.0)
    try:
        table = pq.read_table(path, columns=["step", "epoch", "split", "name", "value"])
    except (pa.ArrowInvalid, OSError) as error:
        raise StoreError(f"{path}: cannot be read as a run's metrics: {error}") from error
    return arrange(table)


def arrange(table: pa.Table) -> Metrics:
    """Return the metrics of a table, each in the order of its steps; of a step logged twice, the later."""
    steps, epochs, values = (np.array(table[name], np.float64) for name in ("step", "epoch", "value"))
    places: dict[tuple[str, str], dict[float, int]] = {}
    for row, key in enumerate(zip(table["split"].to_pylist(), table["name"].to_pylist(), strict=True)):
        places.setdefault(key, {})[steps[row]] = row
    points: dict[tuple[str, str], Points] = {}
    for key, rows in places.items():
        order = [rows[step] for step in sorted(rows)]
        points[key] = Points(steps[order], values[order])
    return Metrics(points, int(steps.max(initial=0)), float(epochs.max(initial=0)))


def draw_run(metrics: Metrics) -> list[Section]:
    """Return the charts of what there is; metrics that no chart knows get one each."""
    sections = [
        Section(title, lead, tuple(_draw(metrics, specs))) for title, lead, specs in (*SECTIONS, _further(metrics))
    ]
    return [section for section in sections if section.charts]


def _further(metrics: Metrics) -> tuple[str, str, tuple[Spec, ...]]:
    known = {name for _, _, specs in SECTIONS for spec in specs for name, _, _ in spec.shows}
    names = {name for _, name in metrics.points} - known - set(FACTS)
    rest = sorted(name for name in names if not name.startswith(SUMMARIES))
    return "Further metrics", "", tuple(Spec(title=name, unit="", shows=((name, name, "plain"),)) for name in rest)


def _draw(metrics: Metrics, specs: Sequence[Spec]) -> Iterator[LineChart]:
    for spec in specs:
        frame = Frame(
            title=spec.title, unit=spec.unit, last=float(metrics.last), holds=spec.holds, percent=spec.percent
        )
        if chart := draw_lines(frame, _series(metrics, spec)):
            yield chart


def _series(metrics: Metrics, spec: Spec) -> list[Series]:
    """Return a chart's lines without those that lie exactly on the first one, as SFT's likelihood on its loss."""
    found: list[Series] = []
    for name, words, tone in spec.shows:
        train, held_out = metrics.of(name), metrics.of(name, HELD_OUT)
        one = Series(name=words, tone=tone, train=train, held_out=held_out, exact=spec.exact)
        if not found or not _same(one, found[0]):
            found.append(one)
    return found


def _same(one: Series, other: Series) -> bool:
    return all(
        np.array_equal(a.values, b.values) for a, b in ((one.train, other.train), (one.held_out, other.held_out))
    )
