"""Compare a dataset of rendered scenes with the truth, by independent code: texts, removals,
mining, style, splits.

Run with ``make bench BENCH=truth``, or ``python -m tests.bench.bench_truth DATASET``. Without a
dataset, one of ``WORLDS`` worlds is built with another seed than the default. Prints a table of how
many of how many, with a 95 % interval (Wilson's) and the bound; "open": beyond the bound, but not
beyond chance. Examples follow.
"""

import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from io import BytesIO
from math import sqrt
from random import Random

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

import pairwright as pw
from pairwright.schemas.rows import PreferenceRow, RemovalRow
from pairwright.schemas.scene import SceneObject
from pairwright.tasks.scenes.render import exposure_of
from tests.bench.truth_style import distinct_bigrams, statistics_of, structure_of, tell_apart
from tests.bench.truth_text import (
    Graphs,
    Reader,
    Reading,
    decode,
    find_changes,
    is_ambiguous,
    is_true,
    tells,
)

WORLDS, SEED = 12, 7
REMOVALS = 40  # removals that are rendered again, three seconds each
KEPT, ODD = 0.02, 2.0
"""Share of an element's pixels that are nearer to what was there than to what is behind it; levels
(of 255)."""
REPEATED = 108  # texts of which 2-grams are counted: more texts repeat more


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table."""

    what: str
    hits: int
    of: int
    most: float | None = None
    least: float | None = None
    examples: list[str] = field(default_factory=list)

    @property
    def interval(self) -> tuple[float, float]:
        """Return Wilson's interval of the share, 95 %."""
        n, share, z = max(self.of, 1), self.hits / max(self.of, 1), 1.96
        middle, half = (
            share + z * z / (2 * n),
            z * sqrt(share * (1 - share) / n + z * z / (4 * n * n)),
        )
        return max((middle - half) / (1 + z * z / n), 0.0), min(
            (middle + half) / (1 + z * z / n), 1.0
        )

    @property
    def verdict(self) -> str:
        """Return "ok", "not", or "open" where the bound is within the interval."""
        (low, high), share = self.interval, self.hits / max(self.of, 1)
        if self.most is None and self.least is None:
            return ""
        if (self.most is None or share <= self.most) and (
            self.least is None or share >= self.least
        ):
            return "ok" if self.of else "none"
        exact = self.most == 0 or self.least == 1
        return "open" if not exact and low <= (self.most or self.least or 0) <= high else "not"

    def __str__(self) -> str:
        """Return the line."""
        bound = (
            f"<= {self.most:g}"
            if self.most is not None
            else f">= {self.least:g}"
            if self.least is not None
            else ""
        )
        share, (low, high) = self.hits / max(self.of, 1), self.interval
        counts = f"{self.what:<58}{self.hits:>6}{self.of:>7}{share:>8.3f}"
        return f"{counts}  {low:.3f} to {high:.3f}  {bound:<9}{self.verdict}"


class Truth:
    """Dataset with the scene graphs of its images and pairs, and what its texts say."""

    def __init__(self, path: str) -> None:
        """Read the tables that every part needs."""
        self.tables = pw.open(path)
        self.graphs = {
            row.key: row.graph
            for row in self.tables["images"].rows(without=("image",))
            if row.graph
        }
        self.pairs = {row.key: (row.first, row.second) for row in self.tables["pairs"].rows()}
        self.preferences = list(
            self.tables["preferences"].rows(without=("images", "rejected_images"))
        )
        self.reader = Reader(list(self.graphs.values()))
        self._readings: dict[str, Reading] = {}

    def of_pair(self, key: str) -> Graphs:
        """Return the graphs of a pair."""
        first, second = self.pairs[key]
        return self.graphs[first], self.graphs[second]

    def read(self, text: str) -> Reading:
        """Read a text once."""
        if text not in self._readings:
            self._readings[text] = self.reader.read(text)
        return self._readings[text]

    def texts(self) -> dict[str, list[tuple[str, Graphs]]]:
        """Return the texts that are to be true, by table, with what they are about."""
        names = ("differences", "comparisons")
        found = {
            name: [(row.text, self.of_pair(row.subject)) for row in self.tables[name].rows()]
            for name in names
        }
        found["captions"] = [
            (row.text, (self.graphs[row.subject],) * 2) for row in self.tables["captions"].rows()
        ]
        known = {text for text, _ in found["differences"]}
        others = [row for row in self.preferences if row.chosen not in known]
        return {
            **found,
            "chosen of other kinds": [(row.chosen, self.of_pair(row.subject)) for row in others],
        }

    def rejected(self) -> dict[str, list[tuple[str, PreferenceRow]]]:
        """Return the rejected texts of all rows, by maker."""
        found: dict[str, list[tuple[str, PreferenceRow]]] = defaultdict(list)
        for row in self.preferences:
            texts = [
                (row.rejected, row.rejected_maker),
                *((one.text, one.maker) for one in row.negatives),
            ]
            for text, maker in texts:
                if text:
                    found[maker].append((text, row))
        return dict(found)


def measure_texts(truth: Truth) -> Iterator[Figure]:
    """Yield what is false, unread or ambiguous in texts, what they miss, and which rejected texts
    are true."""
    unread: list[str] = []
    for name, texts in truth.texts().items():
        said = [(one, graphs, text) for text, graphs in texts for one in truth.read(text).said]
        unread += [part for text, _ in texts for part in truth.read(text).unread]
        false = [f"{one} {text}" for one, graphs, text in said if not is_true(one, graphs)]
        vague = [text for one, graphs, text in said if is_ambiguous(one, graphs)]
        yield Figure(f"{name}: false statements", len(false), len(said), most=0, examples=false)
        definite = sum(one.definite for one, _, _ in said)
        yield Figure(
            f"{name}: definite references that are ambiguous",
            len(vague),
            definite,
            most=0,
            examples=vague,
        )
        if name in ("differences", "comparisons"):
            yield _missed(name, truth, texts)
    for maker, texts in truth.rejected().items():
        pool = [(text, truth.read(text), truth.of_pair(row.subject)) for text, row in texts]
        unread += [part for _, reading, _ in pool for part in reading.unread]
        true = [
            text for text, reading, graphs in pool if not reading.unread and _holds(reading, graphs)
        ]
        yield Figure(
            f"{maker}: rejected texts that are true", len(true), len(pool), most=0, examples=true
        )
    texts = sum(map(len, truth.texts().values())) + sum(map(len, truth.rejected().values()))
    yield Figure(
        "sentences not parsed, in so many texts", len(unread), texts, most=0, examples=unread
    )


def _holds(reading: Reading, graphs: Graphs) -> bool:
    return all(is_true(one, graphs) for one in reading.said)


def _missed(name: str, truth: Truth, texts: list[tuple[str, Graphs]]) -> Figure:
    pairs = [(text, graphs) for text, graphs in texts if graphs[0].world == graphs[1].world]
    changes = [(text, graphs, change) for text, graphs in pairs for change in find_changes(graphs)]
    missed = [
        text
        for text, graphs, change in changes
        if not any(tells(a, change, graphs) for a in truth.read(text).said)
    ]
    return Figure(
        f"{name}: changes that are not said", len(missed), len(changes), most=0, examples=missed
    )


def measure_mining(truth: Truth) -> Iterator[Figure]:
    """Yield precision and recall of the pairs: right are two photographs of one world, and all of
    these are wanted."""
    worlds = Counter(graph.world for graph in truth.graphs.values())
    right = sum(first.world == second.world for first, second in map(truth.of_pair, truth.pairs))
    yield Figure("mining: precision", right, len(truth.pairs), least=0.95)
    yield Figure(
        "mining: recall", right, sum(n * (n - 1) // 2 for n in worlds.values()), least=0.95
    )
    things = [thing for graph in truth.graphs.values() for thing in graph.objects]
    unlike = [thing.id for thing in things if not _fits(thing)]
    yield Figure("graphs: boxes or columns unlike their masks", len(unlike), len(things), most=0)


def _fits(thing: SceneObject) -> bool:
    lines, columns = np.nonzero(decode(thing))
    box = (int(columns.min()), int(lines.min()), int(columns.max()) + 1, int(lines.max()) + 1)
    middle = 3 * (box[0] + box[2]) / 2
    third = (
        "left"
        if middle < thing.mask.width
        else "right"
        if middle > 2 * thing.mask.width
        else "centre"
    )
    return box == thing.box and third == thing.column


def measure_style(truth: Truth) -> Iterator[Figure]:
    """Yield how well classifiers tell the rejected texts of each maker from the chosen texts of the
    same rows."""
    usual: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for graph in truth.graphs.values():
        for thing in graph.objects:
            usual[thing.shape, thing.material].add(graph.world)
    for maker, texts in truth.rejected().items():
        both = [
            (text, row, label)
            for rejected, row in texts
            for text, label in ((row.chosen, 0), (rejected, 1))
        ]
        worlds = [truth.of_pair(row.subject)[0].world for _, row, _ in both]
        labels = [label for _, _, label in both]
        features = {
            "n-grams": [text for text, _, _ in both],
            "length": [[len(text), len(text.split())] for text, _, _ in both],
            "structure": [
                structure_of(truth.read(text), text, usual, world)
                for (text, _, _), world in zip(both, worlds, strict=True)
            ],
        }
        for name, rows in features.items():
            right, of = tell_apart(name, rows, labels, worlds)
            yield Figure(
                f"{maker}: told from chosen by {name}",
                right,
                of,
                most=0.55 if name == "structure" else None,
            )


def measure_images(truth: Truth) -> Iterator[Figure]:
    """Yield what removals leave, change elsewhere and give away."""
    made = [row.key for row in truth.preferences if row.rejected_image_maker == "removal"]
    sample = Random(0).sample(made, min(REMOVALS, len(made)))
    chosen = {row.subject: row.element for row in truth.tables["rejections"].rows() if row.element}
    removals = {row.source_key: row for row in truth.tables["removals"].rows(without=("patch",))}
    statistics: list[list[float]] = []
    worlds: list[str] = []
    anew: list[list[float]] = []
    where: list[str] = []
    found: list[tuple[str, str, str]] = []
    for row in truth.tables["preferences"].rows():
        if row.rejected_image_maker == "removal":
            shown, rejected, side = _changed(row)
            world = truth.of_pair(row.subject)[side].world
            statistics += [statistics_of(shown), statistics_of(rejected)]
            worlds += [world] * 2
            if row.key in sample:
                faults, empty = _check_removal(truth, row, removals[chosen[row.subject]])
                found.append(faults)
                anew += [statistics_of(empty), statistics_of(rejected)]
                where += [world] * 2
    if made:
        right, of = tell_apart("image statistics", statistics, [0, 1] * len(made), worlds)
        yield Figure("images: rejected told from the originals", right, of, most=0.55)
        right, of = tell_apart("image statistics", anew, [0, 1] * len(sample), where)
        yield Figure("images: rejected told from the emptier scene", right, of, most=0.55)
    for number, (what, most) in enumerate(REMOVAL_FAULTS.items()):
        faults = [faults[number] for faults in found if faults[number]]
        yield Figure(f"removals: {what}", len(faults), len(found), most=most, examples=faults)


REMOVAL_FAULTS = {
    "element still seen": 0.0,
    "bytes changed outside the window": 0.0,
    "unlike the scene without it": 0.05,
}


def _changed(row: PreferenceRow) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the image that a rejected one replaces, the rejected one, and its place."""
    side = next(
        k for k, (a, b) in enumerate(zip(row.images, row.rejected_images, strict=True)) if a != b
    )
    pictures = [
        Image.open(BytesIO(images[side])).convert("RGB")
        for images in (row.images, row.rejected_images)
    ]
    return np.array(pictures[0]), np.array(pictures[1]), side


def _check_removal(
    truth: Truth, row: PreferenceRow, removal: RemovalRow
) -> tuple[tuple[str, str, str], NDArray[np.uint8]]:
    """Compare with the scene without the element, photographed with other noise: what is wrong of
    each, and that."""
    shown, rejected, side = _changed(row)
    graph = truth.of_pair(row.subject)[side]
    exposure = exposure_of(graph)
    assert exposure is not None
    again, empty = (
        replace(one, seed=one.seed + 1).expose()
        for one in (exposure, exposure.without(*removal.object_ids))
    )
    x0, y0, x1, y1 = removal.window
    apart = (rejected != shown).any(2)
    apart[y0:y1, x0:x1] = False
    mask = np.any(
        [decode(thing) for thing in graph.objects if thing.id in removal.object_ids], axis=0
    )
    seen = mask & (_far(empty, shown) > 24)
    kept = (
        float((_far(rejected, shown) < _far(rejected, empty))[seen].mean()) if seen.any() else 0.0
    )
    # What a photograph differs from its like is noise: a removal may differ from the empty scene by
    # as much.
    odd = _blurred(rejected, empty, removal.window) - _blurred(shown, again, removal.window)
    name = f"{graph.world}/photograph-{graph.photograph}, {removal.tag}"
    faults = (
        f"{name}: {kept:.0%} kept" if kept > KEPT else "",
        f"{name}: {apart.sum()} pixels" if apart.any() else "",
        f"{name}: {odd:.1f} levels" if odd > ODD else "",
    )
    return faults, empty


def _blurred(a: np.ndarray, b: np.ndarray, window: tuple[int, int, int, int]) -> float:
    """Return by how many levels squares of 13 pixels differ, all but the worst hundredth of
    them."""
    x0, y0, x1, y1 = window
    means = [cv2.blur(image.astype(np.float32), (13, 13))[y0:y1, x0:x1] for image in (a, b)]
    return float(np.percentile(np.abs(means[0] - means[1]).mean(2), 99))


def _far(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.abs(a.astype(int) - b.astype(int)).max(2)


def measure_splits(truth: Truth) -> Iterator[Figure]:
    """Yield what training rows share with others."""
    train = {
        text for texts in truth.rejected().values() for text, row in texts if row.split == "train"
    }
    held = [row for row in truth.preferences if row.split != "train"]
    leaked = [row.chosen for row in held if row.chosen in train]
    yield Figure(
        "splits: held-out answers that training rejects",
        len(leaked),
        len(held),
        most=0,
        examples=leaked,
    )
    images: dict[str, set[str]] = defaultdict(set)
    worlds: dict[str, set[str]] = defaultdict(set)
    for row in truth.preferences:
        for key in row.image_keys:
            images[key].add(row.split)
            worlds[truth.graphs[key].world].add(row.split)
    for name, where in (("images", images), ("worlds", worlds)):
        yield Figure(
            f"splits: {name} in two",
            sum(len(splits) > 1 for splits in where.values()),
            len(where),
            most=0,
        )


def measure_repetition(truth: Truth) -> Iterator[Figure]:
    """Yield how varied the chosen texts are."""
    texts = sorted({row.chosen for row in truth.preferences})
    sample = Random(0).sample(texts, min(REPEATED, len(texts)))
    different, pairs = distinct_bigrams(sample)
    least = 0.336 if len(sample) == REPEATED else None  # fewer texts repeat less
    yield Figure(f"chosen: distinct 2-grams, in {len(sample)} texts", different, pairs, least=least)
    skeletons = Counter(part for text in sample for part in truth.reader.skeletons(text))
    yield Figure("chosen: different sentence skeletons", len(skeletons), skeletons.total())
    yield Figure(
        "chosen: sentences with the commonest skeleton",
        max(skeletons.values(), default=0),
        skeletons.total(),
    )


def main() -> None:
    """Print the table of a dataset."""
    if len(sys.argv) > 1:
        report(sys.argv[1])
        return
    with tempfile.TemporaryDirectory(prefix="pairwright-bench-") as path:
        pw.build("scenes:", out=path, settings=(f"seed={SEED}", f"scenes.worlds={WORLDS}"))
        report(path)


def report(path: str) -> None:
    """Print one line per figure, and up to three examples of what is not within its bound."""
    truth = Truth(path)
    print(f"{'':<58}{'count':>7}{'of':>7}{'share':>8}  {'interval':<15} bound", flush=True)
    found: list[Figure] = []
    for measure in (
        measure_texts,
        measure_mining,
        measure_splits,
        measure_repetition,
        measure_style,
        measure_images,
    ):
        for figure in measure(truth):
            found.append(figure)
            print(figure, flush=True)
    for figure in found:
        for example in figure.examples[:3]:
            print(f"  {figure.what}: {example}")


if __name__ == "__main__":
    main()
