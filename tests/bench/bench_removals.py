"""Measure which fills of removed things the inspection refuses, on photographs.

Run with ``make bench BENCH=removals``, or ``python -m tests.bench.bench_removals [FOLDER]``; takes
eight minutes of CPU time. Things are planted into the photographs that scikit-image and
scikit-learn ship, so that what is behind them is known; each is filled well and badly
(``removal_fills``), at its spot and moved to a random place of another photograph, and inspected
without a detector. The bounds were chosen on the photographs ``TUNING``.

A bad fill that looks like the original is none, and is left out, as is a patched one that does not
(``is_unseen``); so is a copy from a place that looks the same (``is_same_texture``). The last
columns count what is left out. FOLDER keeps what is planted, for the next run, and gets a sheet of
fills to look at.
"""

import pickle
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import skimage
import sklearn
from PIL import Image

from pairwright.schemas.config import InspectionConfig, PlantedConfig
from pairwright.schemas.rows import ImageRow, InspectionRow
from pairwright.tasks.images.decode import encode_png
from pairwright.tasks.images.masks import decode_mask
from pairwright.tasks.images.scale import scale_down
from pairwright.tasks.planting.photograph_planted import PlantedPhotograph, photograph_planted
from pairwright.tasks.planting.uncover import uncover
from pairwright.tasks.rejected.inspect_removals import inspect_removals
from tests.bench.removal_fills import (
    BAD,
    COPY,
    DILATE,
    FEATHER,
    GOOD,
    PATCHED,
    RGB,
    Filled,
    Removal,
    hole_of,
    is_same_texture,
    is_unseen,
    move,
)
from tests.fixtures.pictures import photograph
from tests.fixtures.removals import element_of, extent, removal_of

SKIMAGE = Path(skimage.__file__).parent / "data"
SKLEARN = Path(sklearn.__file__).parent / "datasets" / "images"
TUNING = (
    *("astronaut.png", "coffee.png", "camera.png", "moon.png", "gravel.png", "ihc.png"),
    *("motorcycle_left.png", "motorcycle_right.png", "rocket.jpg"),
)
HELD_OUT = (
    *("chelsea.png", "coins.png", "brick.png", "grass.png", "hubble_deep_field.jpg"),
    *("retina.jpg", "china.jpg", "flower.jpg"),
)
SIDE = 768  # longer side of the photographs, in pixels
CONFIG = PlantedConfig(photographs=2, samples_per_pixel=4)
MAX_REFUSED, MIN_REFUSED = 0.05, 0.9  # of good and of bad fills
AROUND = 50  # pixels around a hole that are kept
EDGE = 2  # pixels around a thing that it may touch
SHOWN = 30  # fills on the sheet
SHEET = 256  # side of a picture of the sheet


def read_photograph(name: str) -> RGB:
    """Return a photograph, scaled down."""
    folder = SKIMAGE if (SKIMAGE / name).exists() else SKLEARN
    return scale_down(np.asarray(Image.open(folder / name).convert("RGB")), SIDE)


def plant(name: str, folder: Path) -> list[PlantedPhotograph]:
    """Return the planted photographs of one; kept in the folder."""
    path = folder / f"{name}.pickle"
    if not path.exists():
        seed = sorted(TUNING + HELD_OUT).index(name)
        planted = photograph_planted(read_photograph(name), CONFIG, world=name, seeds=(0, seed))
        path.write_bytes(pickle.dumps(planted or []))
    return pickle.loads(path.read_bytes())


def find_removals(name: str, folder: Path) -> list[Removal]:
    """Return the removals of the things in one photograph, each thing once."""
    removals: dict[object, Removal] = {}
    for planted in plant(name, folder):
        for item in planted.graph.objects:
            assert item.mask is not None
            mask = decode_mask(item.mask)
            original = uncover(planted.pixels, planted.graph, {item.id})
            edge = np.ones((2 * EDGE + 1, 2 * EDGE + 1), np.uint8)
            covered = cv2.dilate(mask.astype(np.uint8), edge) > 0
            before = np.where(covered[:, :, None], planted.pixels, original)
            looks = (item.id, item.shape, item.colour, item.material, item.size, item.box)
            removals.setdefault(looks, Removal(name, before, original, mask, planted.pixels))
    return list(removals.values())


def list_removals(names: tuple[str, ...], folder: Path) -> Iterator[Removal]:
    """Yield each thing at its spot, and again in the next photograph that has room."""
    rng = np.random.default_rng(0)
    for number, name in enumerate(names):
        for index, removal in enumerate(find_removals(name, folder)):
            yield removal
            other = names[(number + index + 1) % len(names)]
            moved = move(removal, read_photograph(other), other, rng)
            if moved is not None:
                yield moved


def inspect(filled: Filled) -> InspectionRow:
    """Inspect a filled removal as a build does."""
    image: ImageRow = photograph(filled.before)
    element = element_of(image.key, "thing", mask=filled.mask)
    window = extent(hole_of(filled.mask))
    row = removal_of(image, element, window, altered=filled.after, dilate=DILATE, feather=FEATHER)
    (inspected,) = inspect_removals([row], InspectionConfig(), images={image.key: image})
    assert isinstance(inspected, InspectionRow)
    return inspected


@dataclass(frozen=True, slots=True)
class Judged:
    """Fill with what the inspection found, and whether it is left out of the table."""

    kind: str
    photograph: str
    filled: Filled
    row: InspectionRow
    is_left_out: bool


def judge_fills(names: tuple[str, ...], folder: Path) -> Iterator[Judged]:
    """Yield each removal in each fill."""
    for number, removal in enumerate(list_removals(names, folder)):
        rng = np.random.default_rng(number)
        for kind, fill in {**GOOD, **BAD}.items():
            filled = fill(removal, rng)
            if filled is None:
                continue
            is_left_out = _is_left_out(kind, filled, removal)
            cut = _cut(filled)
            yield Judged(kind, removal.name, cut, inspect(cut), is_left_out)


def _cut(filled: Filled) -> Filled:
    """Cut out what the inspection looks at, with some more around it."""
    x0, y0, x1, y1 = extent(hole_of(filled.mask))
    rows = slice(max(y0 - AROUND, 0), y1 + AROUND)
    columns = slice(max(x0 - AROUND, 0), x1 + AROUND)
    return Filled(
        before=filled.before[rows, columns].copy(),
        after=filled.after[rows, columns].copy(),
        mask=filled.mask[rows, columns].copy(),
    )


def _is_left_out(kind: str, filled: Filled, removal: Removal) -> bool:
    """Return whether a good fill does not look like the original, or a bad one does."""
    if kind == PATCHED:
        return not is_unseen(filled, removal)
    if kind == COPY and is_same_texture(filled, removal):
        return True
    return kind in BAD and is_unseen(filled, removal)


@dataclass(slots=True)
class Tally:
    """Counts of one kind of fill."""

    refused: int = 0
    total: int = 0
    left_out: int = 0

    def __str__(self) -> str:
        share = self.refused / max(self.total, 1)
        return f"{self.refused:>5} of {self.total:>4} {share:>6.1%} {self.left_out:>6}"


def tally(fills: Iterable[Judged]) -> dict[str, Tally]:
    """Count the refused fills by kind."""
    tallies: dict[str, Tally] = defaultdict(Tally)
    for judged in fills:
        counts = tallies[judged.kind]
        if judged.is_left_out:
            counts.left_out += 1
            continue
        counts.total += 1
        counts.refused += not judged.row.passed
    return tallies


def print_table(tuning: Sequence[Judged], held_out: Sequence[Judged]) -> None:
    """Print refused fills by kind, and the reasons."""
    columns = (tally(tuning), tally(held_out))
    title = "refused, left out: tuning"
    print(f"{'fill':<40}{title:>28}{'held out':>28}  bound")
    for kind in (*GOOD, *BAD):
        bound = f"<= {MAX_REFUSED:.0%}" if kind in GOOD else f">= {MIN_REFUSED:.0%}"
        print(f"{kind:<40}{columns[0][kind]!s:>28}{columns[1][kind]!s:>28}  {bound}")
    for kinds, name in ((GOOD, "all good fills"), (BAD, "all bad fills")):
        total = [_sum(tallies, kinds) for tallies in columns]
        print(f"{name:<40}{total[0]!s:>28}{total[1]!s:>28}")
    reasons = Counter[tuple[str, str]]()
    for judged in (*tuning, *held_out):
        if judged.row.why and not judged.is_left_out:
            reasons[judged.kind, judged.row.why] += 1
    for (kind, why), count in sorted(reasons.items()):
        print(f"{count:>5} {kind}: {why}")


def _sum(tallies: dict[str, Tally], kinds: Iterable[str]) -> Tally:
    total = Tally()
    for kind in kinds:
        total.refused += tallies[kind].refused
        total.total += tallies[kind].total
        total.left_out += tallies[kind].left_out
    return total


def draw_sheet(fills: Sequence[Judged], path: Path) -> None:
    """Draw some fills next to the photograph with the thing; a red frame is refused."""
    pictures: list[RGB] = []
    for judged in fills:
        sides = [judged.filled.before, judged.filled.after]
        picture = np.concatenate(
            [cv2.resize(side, (SHEET, SHEET), interpolation=cv2.INTER_AREA) for side in sides],
            axis=1,
        )
        colour = (0, 200, 0) if judged.row.passed else (255, 0, 0)
        picture = cv2.copyMakeBorder(picture, 20, 4, 4, 4, cv2.BORDER_CONSTANT, value=colour)
        label = f"{judged.kind}: {judged.row.why.split(' (')[0] or 'passed'}"
        cv2.putText(picture, label, (6, 14), cv2.FONT_HERSHEY_SIMPLEX, 0.4, (0, 0, 0), 1)
        pictures.append(np.asarray(picture, np.uint8))
    while len(pictures) % 3:
        pictures.append(np.zeros_like(pictures[0]))
    lines = [
        np.concatenate(pictures[start : start + 3], axis=1) for start in range(0, len(pictures), 3)
    ]
    path.write_bytes(encode_png(np.concatenate(lines)))


def main() -> None:
    """Print the table, and draw the sheet."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        folder.mkdir(parents=True, exist_ok=True)
        start = time.process_time()
        tuning = list(judge_fills(TUNING, folder))
        held_out = list(judge_fills(HELD_OUT, folder))
        print_table(tuning, held_out)
        print(f"{time.process_time() - start:.0f} CPU seconds")
        chosen = np.random.default_rng(0).permutation(len(held_out))[:SHOWN]
        draw_sheet([held_out[index] for index in chosen], folder / "fills.png")


if __name__ == "__main__":
    main()
