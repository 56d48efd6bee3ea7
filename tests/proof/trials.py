"""Train the seeing stand-in with the project's own trainer, and measure what it says of scenes that
it has not seen."""

import io
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
from PIL import Image

from pairwright.flows.training.make_train_config import make_config
from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.training.chat_format import make_messages
from pairwright.tasks.training.embed_chosen_texts import hash_words
from pairwright.tasks.training.fit_preferences import fit_preferences
from tests.fixtures.retrievers_to_train import write_material
from tests.fixtures.runs_to_train import write_run
from tests.proof.draw_scenes import Drawn
from tests.proof.measure_truth import measure
from tests.proof.see import load_model, look_at

BATCH = 32
COMMON = [
    *("model.tuning=full", "model.train_vision=true", "optimiser.lr_scheduler_type=cosine"),
    f"optimiser.per_device_train_batch_size={BATCH}",
    *("data.eval_split=test", "data.max_eval_rows=0", "data.dataloader_num_workers=0"),
    *(
        "output.eval_steps=0",
        "output.save_steps=1000000",
        "output.logging_steps=20",
        "output.write_answers=true",
    ),
    "output.alarms=log",
]
Said = Callable[[Drawn], str]
WORDS = 512
"""Length of the vectors of hashed words that ADPO's retriever has."""
AT_ONCE = 100
LONGEST = 64
"""Tokens of a sampled answer."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """How a model is trained on; equal work is told in steps."""

    objective: str
    steps: int
    rate: float
    settings: tuple[str, ...] = ()


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
        self, name: str, arm: Arm, rows: Sequence[PreferenceRow], start: str = ""
    ) -> dict[str, Any]:
        """Train from another run of this folder, or from the model that sees, and return what it is
        worth.

        A training that was finished before is not done again.
        """
        place, begun = self.folder / name, self.model(start)
        known = place / "result.json"
        if known.exists():
            return json.loads(known.read_text())
        shutil.rmtree(place, ignore_errors=True)
        own = [
            f"optimiser.max_steps={arm.steps}",
            f"optimiser.learning_rate={arm.rate}",
            f"seed={self.seed}",
        ]
        config = make_config(arm.objective, [*COMMON, *own, *arm.settings], model=str(begun))
        held_out = [replace(pair.row, chosen=self.say(pair)) for pair in self.tests]
        job = replace(write_run(place, config, rows=[*rows, *held_out]), start=begun)
        began = time.process_time()
        if arm.objective == "adpo":
            shown = [*rows, *held_out]
            texts, images = [row.chosen for row in shown], look_at(self.base, shown)
            vectors: NDArray[np.float64] = hash_words(texts, WORDS).astype(np.float64)
            write_material(job, shown, images, dict(zip(texts, vectors, strict=True)))
        fit_preferences(job)
        seconds = time.process_time() - began
        lines = (job.run.answers / "predictions.jsonl").read_text().splitlines()
        answers = {one["id"]: one["text"] for one in map(json.loads, lines)}
        for scratch in (place / "tables", job.run.checkpoints, job.run.folder / "samples"):
            shutil.rmtree(scratch, ignore_errors=True)
        graphs = {pair.row.key: pair.graphs for pair in self.tests}
        wanted = {row.key: row.chosen for row in held_out}
        found = {
            "cpu": round(seconds),
            "steps": arm.steps,
            "rate": arm.rate,
            **measure(answers, graphs, wanted),
        }
        known.write_text(json.dumps(found))
        return found

    def model(self, name: str) -> Path:
        """Return the folder of a run's model, or of the one that sees."""
        return self.folder / name / "runs" / "run" / "checkpoint" if name else self.base

    def sample(
        self, name: str, pairs: Sequence[Drawn], number: int
    ) -> tuple[list[tuple[Drawn, list[str]]], int]:
        """Return what a run's model says of each pair, drawn at temperature 1, and the CPU seconds
        of that."""
        torch.manual_seed(self.seed)
        began, found = time.process_time(), list[tuple[Drawn, list[str]]]()
        model, processor = load_model(self.model(name))
        for first in range(0, len(pairs), AT_ONCE):
            some = pairs[first : first + AT_ONCE]
            messages = [make_messages(pair.row.prompt, 2) for pair in some]
            asked = [
                processor.apply_chat_template(one, add_generation_prompt=True) for one in messages
            ]
            images = [[Image.open(io.BytesIO(image)) for image in pair.row.images] for pair in some]
            given = processor(
                text=asked, images=images, padding=True, padding_side="left", return_tensors="pt"
            )
            drawn: dict[str, Any] = {"do_sample": True, "top_k": 0, "num_return_sequences": number}
            with torch.no_grad():
                made = model.generate(**given, max_new_tokens=LONGEST, **drawn)
            said = processor.batch_decode(
                made[:, given["input_ids"].shape[1] :], skip_special_tokens=True
            )
            texts = [text.strip() for text in said]
            found += [
                (pair, texts[place * number : (place + 1) * number])
                for place, pair in enumerate(some)
            ]
        return found, round(time.process_time() - began)


def prefer(pair: Drawn, chosen: str, rejected: str = "", *, images: bool = False) -> PreferenceRow:
    """Return a pair's row with other texts, and with both images without what differs for rejected
    ones."""
    without = pair.without() if images else ()
    maker = "drawn" if images else ""
    return replace(
        pair.row,
        chosen=chosen,
        rejected=rejected,
        rejected_maker="careless" if rejected else "",
        rejected_images=without,
        rejected_image_maker=maker,
    )


def pick(random: Random, rows: Sequence[PreferenceRow], arm: Arm) -> list[PreferenceRow]:
    """Return as many rows as an arm reads, each once, or all."""
    return random.sample(list(rows), min(len(rows), arm.steps * BATCH))


def set_up_process() -> None:
    """Have one thread per process: two trainings at once are faster than one on two cores."""
    torch.set_num_threads(1)
