"""Pre-train NAMC on generated texts, with and without its modules against noise, and tune it on few human ones.

What paper 001 shows in Figure 4 and Tables 9 and 10, for a NAMC of size small whose CLIP is no beginner: it is warmed
up on what each of some thousand images shows, as the paper's is a published one. Image and text are contrasted as
wholes, and by their tokens, since those are what NIM compares. All arms begin with the same weights; the drawn cells
are NAMC's places, so that a place shows a thing or none. A step with the modules takes about 2.4 times as long as one
without, which gets as many more: the CPU seconds of both are equal. Tuned, by the same few steps, is without masks.
"""

import io
import json
import shutil
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from pairwright.flows.make_train_config import make_config
from pairwright.schemas.namc import DualEncoderConfig, NamcConfig
from pairwright.schemas.phrases import COLUMNS, DEPTHS
from pairwright.schemas.rows import PreferenceRow
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.models import namc_places
from pairwright.tasks.models.namc import NoiseIdentifier
from pairwright.tasks.models.namc_words import ClipWords, learnt_words
from pairwright.tasks.models.open_clip_embedder import create_tokenizer
from pairwright.tasks.training.namc import batches, captioner
from pairwright.tasks.training.namc.train_namc import CLIP, TOKENIZER, VOCABULARY_SIZE, train_namc
from tests.fixtures.runs_to_train import write_run
from tests.proof.draw_scenes import SMALL, Drawn, draw_pairs
from tests.proof.measure_truth import measure
from tests.proof.trials import Trials

GENERATED, PEOPLE = 10_000, 300
"""Texts that are learnt from first, and then."""
BATCH = 32
WITH, WITHOUT, TUNED = 750, 1_800, 150
"""Steps of pre-training with the modules and without, about 170 CPU seconds each, and of tuning."""
RATE, TUNING_RATE = 1.5e-3, 5e-4
ARMS = {"with its modules": (WITH, "true"), "without its modules": (WITHOUT, "false")}
SHOWN, WARM_UP_SEED = 2_000, 2_000
"""Pairs of the warm-up, and the seed that they and no others are drawn with."""
WARM_STEPS, WARM_BATCH, WARM_RATE, TEMPERATURE = 250, 64, 2e-3, 0.07
BEGINNING = "beginning"
Result = dict[str, Any]


def learn_namc(trials: Trials, _: int) -> Iterator[Result]:
    """Yield what few human texts give after generated ones, with the modules and without."""
    rows = [pair.row for pair in draw_pairs(GENERATED, seed=trials.seed)]
    some = draw_pairs(2 * PEOPLE, seed=trials.seed + 50)
    human = list(islice((replace(pair.row, chosen=said) for pair in some if (said := pair.people())), PEOPLE))
    with _cells_as_places():
        warmed = warm_up(trials.seed)
        write_beginning(trials, [row.chosen for row in (*rows, *human)], warmed.noise)
        for name, (steps, enabled) in ARMS.items():
            first = Stage(name=f"pre-{enabled}", start=BEGINNING, steps=steps, rate=RATE, noise=enabled)
            tuned = Stage(name=f"tuned-{enabled}", start=first.name, steps=TUNED, rate=TUNING_RATE, noise="false")
            common = {"size": name, "warm-up": warmed.accuracy, "warm-up cpu": warmed.cpu}
            yield {"arm": "generated texts alone", **common, **train(trials, first, rows)}
            yield {"arm": f"generated, then {PEOPLE} of people's", **common, **train(trials, tuned, human)}


@contextmanager
def _cells_as_places() -> Generator[None]:
    """Have NAMC of size small see images of this size, in the cells that things stand in."""
    sizes: dict[str, Any] = {"SMALL_SIDE": SMALL.side, "PATCH": SMALL.cell}
    eyes = namc_places.SMALL_CLIP["vision_cfg"] | {"image_size": SMALL.side, "patch_size": SMALL.cell}
    with ExitStack() as stack:
        for module in (namc_places, captioner):
            stack.enter_context(patch.multiple(module, **sizes))
        stack.enter_context(patch.object(batches, "SMALL_SIDE", SMALL.side))
        stack.enter_context(patch.dict(namc_places.SMALL_CLIP, vision_cfg=eyes))
        yield


# --- The warm-up of CLIP ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Warmed:
    """A noise module that has seen what images show."""

    noise: NoiseIdentifier
    accuracy: float
    """How often, of 64 texts, an image's own is the nearest; of images that it has not seen. By chance 1.6 %."""
    cpu: int
    """Seconds."""


def warm_up(seed: int, *, steps: int = WARM_STEPS) -> Warmed:
    """Return the noise module of a fresh NAMC whose CLIP has learnt which text tells what an image shows."""
    began, random = time.process_time(), Random(seed)
    noise = _fresh([""], seed).model.noise
    assert noise is not None
    images, texts = _show(list(draw_pairs(SHOWN, seed=WARM_UP_SEED)))
    optimiser = torch.optim.AdamW(noise.parameters(), WARM_RATE, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, WARM_RATE, steps, pct_start=0.1)
    for _ in range(steps):
        # Half as many pairs: both images of a pair, which differ in one thing.
        pairs = torch.tensor(random.sample(range(SHOWN), WARM_BATCH // 2))
        places = torch.cat([2 * pairs, 2 * pairs + 1])
        own = torch.arange(len(places))
        both = _contrast(noise, images[places], texts[places])
        loss = torch.stack([cross_entropy(one, own) for found in both for one in found]).sum()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(noise.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    return Warmed(noise=noise, accuracy=_retrieve(noise), cpu=round(time.process_time() - began))


def _contrast(noise: NoiseIdentifier, images: Tensor, texts: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return logits (B, B) both ways, of wholes and of tokens: each word beside the patch that it fits best."""
    seen, patches = (normalize(one, dim=-1) for one in noise.see(images))
    read, tokens = (normalize(one, dim=-1) for one in noise.read(texts)[:2])
    real = (texts > 0) & (torch.arange(texts.shape[1]) < texts.argmax(1, keepdim=True))
    real[:, 0] = False  # the mark of the start
    longest = int(texts.argmax(1).max())
    fits = torch.einsum("ipe,tle->itlp", patches, tokens[:, :longest]).amax(3)
    fits = (fits * real[:, :longest]).sum(2) / real.sum(1)
    return [(found, found.T) for found in (seen @ read.T / TEMPERATURE, fits / TEMPERATURE)]


@torch.no_grad()
def _retrieve(noise: NoiseIdentifier) -> float:
    unseen = list(draw_pairs(4 * WARM_BATCH, seed=WARM_UP_SEED, split="validation"))
    images, texts = (one[::2] for one in _show(unseen))
    own = torch.arange(WARM_BATCH)
    found = [
        _contrast(noise, *batch)[0][0].argmax(1) == own
        for batch in zip(images.split(WARM_BATCH), texts.split(WARM_BATCH), strict=True)
    ]
    return torch.cat(found).float().mean().item()


def _show(pairs: Sequence[Drawn]) -> tuple[Tensor, Tensor]:
    """Return the pixels of both images of each pair, as NAMC's CLIP sees them, and the tokens of what they show."""
    crops = [np.asarray(Image.open(io.BytesIO(data))) for pair in pairs for data in pair.row.images]
    patches = torch.from_numpy(namc_places.split_patches(np.stack(crops))) / 127.5 - 1
    words = ClipWords(create_tokenizer(DualEncoderConfig(model=TOKENIZER), field=CLIP))
    texts = [words.split(tell(graph, pair.rng)).tokens for pair in pairs for graph in pair.graphs]
    return namc_places.join_patches(patches.unflatten(0, (-1, 2))).flatten(0, 1), torch.from_numpy(np.stack(texts))


def tell(graph: SceneGraph, rng: Random) -> str:
    """Return what a scene shows, in the words of generated texts."""
    things = [
        f"a {one.colour} {one.shape} {COLUMNS[str(one.column)]} {DEPTHS[one.depth]}"
        for one in rng.sample(graph.objects, len(graph.objects))
    ]
    return ", ".join(things)


# --- Trainings --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A training, from another one of the folder."""

    name: str
    start: str
    steps: int
    rate: float
    noise: str
    """Whether with the modules: true or false."""


def _fresh(texts: Sequence[str], seed: int) -> captioner.Captioner:
    return captioner.make_captioner(learnt_words(texts, size=VOCABULARY_SIZE), NamcConfig(), {}, seed=seed)


def _model(trials: Trials, name: str) -> Path:
    return trials.folder / name / "runs" / "run" / "checkpoint"


def write_beginning(trials: Trials, texts: Sequence[str], noise: NoiseIdentifier) -> None:
    """Write the model that all begin with: a warmed-up noise module, words of all texts, and nothing learnt of them."""
    fresh = _fresh(texts, trials.seed)
    fresh.model.noise = noise
    folder = _model(trials, BEGINNING)
    folder.mkdir(parents=True, exist_ok=True)
    captioner.save_captioner(fresh, folder)


def train(trials: Trials, stage: Stage, rows: Sequence[PreferenceRow]) -> Result:
    """Train with the project's own trainer, and return what the model is worth."""
    place = trials.folder / stage.name
    known = place / "result.json"
    if known.exists():
        return json.loads(known.read_text())
    shutil.rmtree(place, ignore_errors=True)
    settings = [
        *(f"optimiser.max_steps={stage.steps}", f"optimiser.learning_rate={stage.rate}", f"seed={trials.seed}"),
        *(f"optimiser.per_device_train_batch_size={BATCH}", f"namc.noise_enabled={stage.noise}"),
        *("data.eval_split=test", "data.max_eval_rows=0", "output.eval_steps=0", "output.logging_steps=50"),
        "output.save_steps=1000000",
    ]
    config = make_config("namc", settings, start=stage.start)
    held_out = [replace(pair.row, chosen=trials.say(pair)) for pair in trials.tests]
    job = replace(write_run(place, config, rows=[*rows, *held_out]), start=_model(trials, stage.start))
    began = time.process_time()
    train_namc(job)
    seconds = time.process_time() - began
    lines = (job.run.answers / "predictions.jsonl").read_text().splitlines()
    answers = {one["id"]: one["text"] for one in map(json.loads, lines)}
    shutil.rmtree(place / "tables")
    graphs = {pair.row.key: pair.graphs for pair in trials.tests}
    wanted = {row.key: row.chosen for row in held_out}
    found = {"cpu": round(seconds), "steps": stage.steps, "rate": stage.rate, **measure(answers, graphs, wanted)}
    known.write_text(json.dumps(found))
    return found
