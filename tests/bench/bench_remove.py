"""Measure the steps to images without an element, against the libraries called one after the other.

Run with ``make bench BENCH=remove``, or ``python -m tests.bench.bench_remove``; takes some three minutes and 3 GB.
Needs the extra ``models``.

Both sides work on the same photographs with the same random weights and the same plan: ten tags per image, their
boxes, their masks (``removal_plan``). Ours are the stages as a build runs them, one after the other, in as many
processes with one thread as there are cores, on a GPU in one: boxes, masks, elements, removals. The baseline
(``removal_demos``) is one loop, one tag at a time, with as many threads, on the same GPU. Loading weights is not
measured; nor is RAM, which is in no library. Compared, too: SAM's masks (intersection over union).
"""

import argparse
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from pairwright.schemas.config import ElementsConfig
from pairwright.schemas.rows import ElementRow, ImageRow, MasksRow, RemovalRow, Row
from pairwright.schemas.scene import Mask
from pairwright.tasks.rejected import choose_elements, detect_boxes, remove_elements, segment_boxes
from pairwright.tasks.store.masks import decode_mask
from pairwright.tasks.store.stage import Stage
from tests.bench.removal_demos import Found, run_demo
from tests.bench.removal_models import Models, write_models
from tests.bench.removal_plan import SIZE, Planned, plan_images
from tests.bench.turns import CORES, begin_worker, count_workers, name_machine

IMAGES, TAGS, TARGET = 6, 10, 6
STAGES: dict[str, Stage] = {
    "detect": detect_boxes.STAGE,
    "segment": segment_boxes.STAGE,
    "choose": choose_elements.STAGE,
    "remove": remove_elements.STAGE,
}


def run_stage(
    rows: Sequence[Row], *, step: str, config: Any, images: Mapping[str, ImageRow]
) -> tuple[list[Row], float]:
    """Return a stage's rows, and the seconds of CPU time that they took; a worker's turn."""
    stage, start = STAGES[step], time.process_time()
    uses = {"images": images} if stage.uses else {}
    return [row for row in stage.function(rows, config, **uses) if isinstance(row, Row)], time.process_time() - start


def run_ours(models: Models, planned: Sequence[Planned]) -> tuple[dict[str, list[Row]], Found]:
    """Run the stages, each on what the plan gives it; elements are what the stage before chose."""
    images = {one.image.key: one.image for one in planned}
    rows: dict[str, list[Row]] = {
        "detect": [one.tags for one in planned],
        "segment": [one.boxes for one in planned],
        "choose": [one.masks for one in planned],
    }
    made, found = dict[str, list[Row]](), Found()
    with ProcessPoolExecutor(count_workers(), get_context("spawn"), begin_worker) as pool:
        for step in STAGES:
            given = made["choose"] if step == "remove" else rows[step]
            config = {"detect": models.detection, "segment": models.segmentation, "remove": models.removals}.get(step)
            work = partial(run_stage, step=step, config=config or ElementsConfig(), images=images)
            size = -(-len(given) // count_workers())
            shards = [given[place : place + size] for place in range(0, len(given), size)]
            list(pool.map(work, [shard[:1] for shard in shards * 2]))  # each worker loads its weights
            start = time.perf_counter()
            done = list(pool.map(work, shards))
            found.seconds[step] = time.perf_counter() - start
            found.busy += sum(busy for _, busy in done)
            made[step] = [row for some, _ in done for row in some]
    return made, found


def show(rows: dict[str, list[Row]], ours: Found, demo: Found, planned: Sequence[Planned]) -> None:
    """Print seconds per image of each step, their ratio, and whether both sides found the same."""
    count = len(planned)
    photographs = f"{count} photographs of {SIZE[0]} x {SIZE[1]}, {TAGS} tags each"
    print(f"{photographs}, small models, {name_machine()} (target {TARGET}x)")
    print(f"  {'seconds per image':<20}{'ours':>10}{'one tag at a time':>20}{'ratio':>9}")
    sides = [({**one.seconds, "all": sum(one.seconds.values()), "CPU time": one.busy}) for one in (ours, demo)]
    for step in (*STAGES, "all", "CPU time"):
        mine, theirs = sides[0][step] / count, sides[1].get(step, 0.0) / count
        print(f"  {step:<20}{mine:10.3f}{theirs:20.3f}{theirs / mine:8.1f}x")
    masks = {row.subject: row for row in rows["segment"] if isinstance(row, MasksRow)}
    overlaps: list[float] = []
    for one, theirs in zip(planned, demo.masks, strict=True):
        for text, mask in zip(masks[one.image.key].masks, theirs, strict=True):
            mine = decode_mask(Mask.model_validate_json(text))
            overlaps.append(float((mine & mask).sum() / max((mine | mask).sum(), 1)))
    print(f"  masks: intersection over union {np.mean(overlaps):.4f}, the least of {len(overlaps)} {min(overlaps):.4f}")
    removed = [row for row in rows["remove"] if isinstance(row, RemovalRow)]
    elements = sum(isinstance(row, ElementRow) for row in rows["choose"])
    changed = sum(row.changed_outside for row in removed)
    print(f"  removals: {len(removed)} of {elements} tags; pixels changed outside: {changed}", flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=IMAGES, help="how many photographs")
    planned = plan_images(parser.parse_args().images, TAGS)
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # for both sides: threads that spin are far slower beside other work
    with tempfile.TemporaryDirectory() as place:
        models = write_models(Path(place))
        with ProcessPoolExecutor(1, get_context("spawn")) as alone:
            threads = {name: os.environ.pop(name) for name in list(os.environ) if name.endswith("_NUM_THREADS")}
            demo = alone.submit(run_demo, models, planned, threads=CORES).result()
        os.environ |= threads
        rows, ours = run_ours(models, planned)
    show(rows, ours, demo, planned)


if __name__ == "__main__":
    main()
