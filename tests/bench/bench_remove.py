"""Measure the steps to images without an element, against the libraries called one after the other.

Run with ``make bench BENCH=remove``, or ``python -m tests.bench.bench_remove``; takes some six minutes and 3 GB.
Needs the extra ``models``. On a machine with a GPU, ``python -m tests.bench.bench_remove --gpu`` takes the published
architectures instead (random weights, 5 GB on disk).

Both sides work on the same photographs with the same random weights and the same plan: ten tags per image, then twenty,
their boxes, their masks (``removal_plan``). Ours are the stages as a build runs them, in its worker processes, one
stage after the other: tags, boxes, masks, elements, removals. The baseline (``removal_demos``) is one loop, one tag at
a time; a milder one, with one prompt and one encoding per image, shows where the gain is from. Loading weights is not
measured. Without a GPU, ours has one thread in each of as many workers as there are cores, the baseline as many threads
in one process.

Compared, too: RAM's tags, the detector's boxes with one prompt (a box of ours is one of the library's, by an
intersection over union of 0.99), and SAM's masks (intersection over union).
"""

import argparse
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from pairwright.schemas.config import ElementsConfig
from pairwright.schemas.rows import BoxesRow, ElementRow, ImageRow, MasksRow, RemovalRow, Row, TagsRow
from pairwright.schemas.scene import Mask
from pairwright.tasks.rejected import choose_elements, detect_boxes, remove_elements, segment_boxes, tag_images
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.masks import decode_mask
from pairwright.tasks.store.pool import ShardFailed, Workers
from pairwright.tasks.store.shard import ShardDone, ShardRef
from pairwright.tasks.store.stage import Planned as PlannedStage
from pairwright.tasks.store.stage import Stage
from tests.bench.removal_demos import ONE_PROMPT, ONE_TAG, STEPS, Found, run_demo
from tests.bench.removal_models import FULL, SMALL, Models, write_models
from tests.bench.removal_plan import SIZE, Planned, plan_images

CORES = len(os.sched_getaffinity(0))
TAGS = (10, 20)
IMAGES, IMAGES_ON_GPU, DEMO_ON_GPU = 6, 256, 8
WARM, WARM_ON_GPU = 1, 96
"""Images that each worker gets before the clock runs; a GPU finds its batch sizes on them."""
PARTS: dict[str, tuple[Stage, str]] = {
    "tag": (tag_images.STAGE, "tagging"),
    "detect": (detect_boxes.STAGE, "detection"),
    "segment": (segment_boxes.STAGE, "segmentation"),
    "choose": (choose_elements.STAGE, "elements"),
    "remove": (remove_elements.STAGE, "removals"),
}
SAME_BOX = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """Hold what the stages give, how long they take, and what they hold of a GPU."""

    seconds: dict[str, float]
    busy: dict[str, float]
    """CPU time of all processes."""
    rows: dict[str, list[Row]]
    megabytes: dict[str, float]


def run_part(planned: PlannedStage, shard: ShardRef) -> ShardDone:
    """Run a stage on rows that lie in a file, in a build's worker process; the results go into another."""
    rows, uses = pickle.loads(Path(shard.plan).read_bytes())
    start = time.process_time()
    results = list(planned.stage.function(rows, planned.config, **uses))
    busy = time.process_time() - start
    done = Path(f"{shard.plan}.done")
    done.write_bytes(pickle.dumps(results))
    return ShardDone(name=shard.name, part=str(done), counts={"megabytes": _peak(), "busy ms": round(1000 * busy)})


def _peak() -> int:
    torch: Any = sys.modules.get("torch")
    return torch.cuda.max_memory_reserved() >> 20 if torch and torch.cuda.is_available() else 0


def run_ours(models: Models, planned: Sequence[Planned], folder: Path, *, gpu: bool) -> Ours:
    """Run the stages, each on what the plan gives it; elements are what the stage before chose."""
    images = {one.image.key: one.image for one in planned}
    inputs: dict[str, list[Row]] = {
        "tag": [one.image for one in planned],
        "detect": [one.tags for one in planned],
        "segment": [one.boxes for one in planned],
        "choose": [one.masks for one in planned],
    }
    ours = Ours(seconds={}, busy={}, rows={}, megabytes={})
    with Workers(CORES, run_part) as workers:
        for name, (stage, section) in PARTS.items():
            config = ElementsConfig() if section == "elements" else getattr(models, section)
            part = PlannedStage(stage=stage, config=config, fingerprint="")
            uses = {"images": images} if stage.uses and name != "tag" else {}
            rows = ours.rows["choose"] if name == "remove" else inputs[name]
            shards = 1 if gpu else CORES
            warm = rows[: WARM_ON_GPU if gpu else WARM]
            run = Run(workers, part, folder, uses)
            run(warm * 2 * shards, shards=2 * shards)
            start = time.perf_counter()
            ours.rows[name], said = run(rows, shards=shards)
            ours.seconds[name] = time.perf_counter() - start
            ours.busy[name] = sum(one["busy ms"] for one in said) / 1000
            ours.megabytes[name] = max(one["megabytes"] for one in said)
    return ours


@dataclass(frozen=True)
class Run:
    """Run one stage in a build's workers."""

    workers: Workers
    part: PlannedStage
    folder: Path
    uses: Mapping[str, Mapping[str, ImageRow]]

    def __call__(self, rows: Sequence[Row], *, shards: int) -> tuple[list[Row], list[dict[str, int]]]:
        """Return all rows in order, and what each shard says of itself."""
        size = -(-len(rows) // shards)
        names = [self._write(number, rows[number * size : (number + 1) * size]) for number in range(shards)]
        done: dict[str, ShardDone] = {}
        for outcome in self.workers.run(self.part, [self._shard(name) for name in names]):
            if isinstance(outcome.result, ShardFailed):
                raise RuntimeError(f"{outcome.shard.name}: {outcome.result.error}")
            done[outcome.result.name] = outcome.result
        found = [row for name in names for row in pickle.loads(Path(done[name].part).read_bytes())]
        return [row for row in found if isinstance(row, Row)], [one.counts for one in done.values()]

    def _write(self, number: int, rows: Sequence[Row]) -> str:
        name = str(self.folder / f"{self.part.stage.name}-{number}")
        Path(name).write_bytes(pickle.dumps((rows, self.uses)))
        return name

    def _shard(self, name: str) -> ShardRef:
        return ShardRef(folder=Folder(str(self.folder)), name=name, plan=name, start=0, stop=0, indexes=(), journals="")


def show_times(ours: Ours, demos: Mapping[str, Found], *, images: int, theirs: int) -> None:
    """Print seconds per image and the share of each step, and how many times longer the others take."""
    sides = {"ours": {name: spent / images for name, spent in ours.seconds.items()}}
    sides |= {way: {name: spent / theirs for name, spent in found.seconds.items()} for way, found in demos.items()}
    print("  seconds per image (share)" + "".join(f"{name:>28}" for name in sides))
    for step in dict.fromkeys([*STEPS[:-1], "choose", *STEPS[-1:]]):
        cells = [_cell(times.get(step), sum(times.values())) for times in sides.values()]
        print(f"  {step:<25}" + "".join(f"{cell:>28}" for cell in cells))
    totals = {name: sum(times.values()) for name, times in sides.items()}
    print(f"  {'images per second':<25}" + "".join(f"{1 / total:28.3f}" for total in totals.values()))
    print(f"  {'times ours':<25}" + "".join(f"{total / totals['ours']:27.1f}x" for total in totals.values()))
    busy = {"ours": sum(ours.busy.values()) / images, **{way: found.busy / theirs for way, found in demos.items()}}
    print(f"  {'CPU seconds per image':<25}" + "".join(f"{spent:28.3f}" for spent in busy.values()))
    print(f"  {'times ours':<25}" + "".join(f"{spent / busy['ours']:27.1f}x" for spent in busy.values()))


def _cell(spent: float | None, total: float) -> str:
    return "" if spent is None else f"{spent:.3f} ({spent / total:.0%})"


def show_likeness(ours: Ours, demos: Mapping[str, Found], planned: Sequence[Planned], *, models: Models) -> None:
    """Print whether both sides found the same."""
    tagged = {row.subject: tuple(tag.name for tag in row.tags) for row in ours.rows["tag"] if isinstance(row, TagsRow)}
    same = [
        tagged.get(one.image.key, ()) == found[: models.tagging.max_tags]
        for one, found in zip(planned, demos[ONE_TAG].tags, strict=False)
    ]
    print(f"  tags: the same of {sum(same)} of {len(same)} images")
    boxed = {row.subject: row for row in ours.rows["detect"] if isinstance(row, BoxesRow)}
    both = list(zip([boxed.get(one.image.key) for one in planned], demos[ONE_PROMPT].boxes, strict=False))
    found = [_matches(row, theirs) for row, theirs in both if row]
    print(f"  boxes: {sum(map(sum, found))} of {sum(map(len, found))} are the library's")
    overlaps = np.array([value for way in (ONE_TAG, ONE_PROMPT) for value in _overlaps(ours, demos[way], planned)])
    print(f"  masks: intersection over union {overlaps.mean():.4f}, the least of {len(overlaps)} {overlaps.min():.4f}")
    removed = [row for row in ours.rows["remove"] if isinstance(row, RemovalRow)]
    elements = [row for row in ours.rows["choose"] if isinstance(row, ElementRow)]
    changed = sum(row.changed_outside for row in removed)
    print(f"  removals: {len(removed)} of {len(elements)} tags; pixels changed outside: {changed}", flush=True)


def _matches(row: BoxesRow, theirs: Any) -> list[bool]:
    """Say of each box of ours whether the library has it."""
    mine = np.array([(box.x0, box.y0, box.x1, box.y1) for box in row.boxes])
    return [bool(len(theirs) and _iou(box, theirs).max() >= SAME_BOX) for box in mine]


def _iou(box: Any, others: Any) -> Any:
    shared = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    inside = shared.clip(0).prod(axis=1)
    return inside / ((box[2:] - box[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(axis=1) - inside)


def _overlaps(ours: Ours, demo: Found, planned: Sequence[Planned]) -> list[float]:
    rows = {row.subject: row for row in ours.rows["segment"] if isinstance(row, MasksRow)}
    found: list[float] = []
    for one, theirs in zip(planned, demo.masks, strict=False):
        for text, mask in zip(rows[one.image.key].masks, theirs, strict=True):
            mine = decode_mask(Mask.model_validate_json(text))
            found.append(float((mine & mask).sum() / max((mine | mask).sum(), 1)))
    return found


def measure(*, gpu: bool, count: int, tags: int) -> None:
    """Print everything."""
    theirs = DEMO_ON_GPU if gpu else count
    planned = plan_images(count, tags)
    with tempfile.TemporaryDirectory() as place:
        models = write_models(Path(place), FULL if gpu else SMALL)
        with ProcessPoolExecutor(1, get_context("spawn")) as alone:
            threads = {name: os.environ.pop(name) for name in list(os.environ) if name.endswith("_NUM_THREADS")}
            demos = alone.submit(run_demo, models, planned[:theirs], ways=(ONE_TAG, ONE_PROMPT), threads=CORES).result()
        os.environ |= threads
        ours = run_ours(models, planned, Path(place), gpu=gpu)
    sizes = "published sizes, GPU" if gpu else f"small models, {CORES} cores"
    print(f"{count} photographs of {SIZE[0]} x {SIZE[1]}, {tags} tags each, {sizes} (target 10x)")
    show_times(ours, demos, images=count, theirs=theirs)
    show_likeness(ours, demos, planned, models=models)
    if gpu:
        print("  GPU memory: " + ", ".join(f"{name} {size:,.0f} MB" for name, size in ours.megabytes.items() if size))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true", help="the published sizes, on a GPU")
    parser.add_argument("--images", type=int, help="how many photographs")
    given = parser.parse_args()
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # for both sides: threads that spin are far slower beside other work
    for tags in TAGS[:1] if given.gpu else TAGS:
        measure(gpu=given.gpu, count=given.images or (IMAGES_ON_GPU if given.gpu else IMAGES), tags=tags)


if __name__ == "__main__":
    main()
