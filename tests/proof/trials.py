"""Train the seeing stand-in with the project's own trainer, and measure what it says of scenes that it has not seen."""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pairwright.flows.make_train_config import make_config
from pairwright.schemas.claims import Graphs
from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.training.embed_chosen_texts import hash_words
from pairwright.tasks.training.train_model import train_model
from tests.fixtures.retrievers_to_train import write_material
from tests.fixtures.runs_to_train import write_run
from tests.proof.draw_scenes import Drawn, say_something_false, say_something_true
from tests.proof.measure_truth import measure
from tests.proof.see import look_at

BATCH = 32
COMMON = [
    *("model.tuning=full", "model.train_vision=true", "reference.method=copy", "optimiser.lr_scheduler_type=cosine"),
    f"optimiser.per_device_train_batch_size={BATCH}",
    *("data.eval_split=test", "data.max_eval_rows=0", "data.dataloader_num_workers=0"),
    *("output.eval_steps=0", "output.save_steps=1000000", "output.logging_steps=20", "output.write_answers=true"),
]
Said = Callable[[Drawn], str]
WORDS = 512
"""Length of the vectors of hashed words that ADPO's retriever has."""


@dataclass(frozen=True, kw_only=True)
class Trials:
    """Trainings of one seed, in a folder."""

    folder: Path
    base: Path
    """The model that sees."""
    tests: Sequence[Drawn]
    seed: int
    say: Said
    """Says what is to be said of a test pair."""

    def train(
        self, name: str, objective: str, rows: Sequence[PreferenceRow], *, steps: int, rate: float, start: str = "",
        settings: Sequence[str] = (),
    ) -> dict[str, Any]:  # fmt: skip
        """Train from another run of this folder, or from the model that sees, and return what it is worth."""
        place = self.folder / name
        shutil.rmtree(place, ignore_errors=True)
        begun = self.folder / start / "runs" / "run" / "checkpoint" if start else self.base
        own = [f"optimiser.max_steps={steps}", f"optimiser.learning_rate={rate}", f"seed={self.seed}"]
        config = make_config(objective, [*COMMON, *own, *settings], model=str(begun))
        held_out = [replace(pair.row, chosen=self.say(pair)) for pair in self.tests]
        job = replace(write_run(place, config, rows=[*rows, *held_out]), start=begun)
        began = time.process_time()
        if objective == "adpo":
            shown = [*rows, *held_out]
            texts, images = [row.chosen for row in shown], look_at(self.base, shown)
            vectors: NDArray[np.float64] = hash_words(texts, WORDS).astype(np.float64)
            write_material(job, shown, images, dict(zip(texts, vectors, strict=True)))
        train_model(job)
        seconds = time.process_time() - began
        lines = (job.run.answers / "predictions.jsonl").read_text().splitlines()
        answers = {one["id"]: one["text"] for one in map(json.loads, lines)}
        for scratch in (place / "tables", job.run.checkpoints, job.run.folder / "samples"):
            shutil.rmtree(scratch, ignore_errors=True)
        graphs = {pair.row.key: pair.graphs for pair in self.tests}
        wanted = {row.key: row.chosen for row in held_out}
        return {"cpu": round(seconds), "steps": steps, "rate": rate, **measure(answers, graphs, wanted)}


def write_carelessly(graphs: Graphs, share: float, rng: Random) -> str:
    """Return what a writer says who states something false of so large a share of the pairs."""
    if rng.random() < share:
        return say_something_false(graphs, rng)
    return say_something_true(graphs, rng)


def prefer(pair: Drawn, chosen: str, rejected: str = "", *, images: bool = False) -> PreferenceRow:
    """Return a pair's row with other texts, and with both images without what differs for rejected ones."""
    without = pair.without() if images else ()
    maker = "drawn" if images else ""
    return replace(
        pair.row, chosen=chosen, rejected=rejected, rejected_maker="careless" if rejected else "",
        rejected_images=without, rejected_image_maker=maker,
    )  # fmt: skip


def set_up_process() -> None:
    """Have one thread per process: two trainings at once are faster than one on two cores."""
    torch.set_num_threads(1)
