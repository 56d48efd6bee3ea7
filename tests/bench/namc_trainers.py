"""Be the two sides of ``bench_namc`` that train: off tables, and looking at the images anew in each step.

Writes checkpoints of the published sizes with random weights (ResNet-101, VQGAN f16 with 1,024 codes, CLIP ViT-B/16, a
vocabulary of BERT's size; 1 GB) and what a run freezes of its tables; both sides read them as a run does, and do the
same steps with the same losses. The second side has the images' crops, and per step the CNN sees them, in pre-training
also VQGAN and CLIP, which sees them once more without masks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch

from pairwright.prompts.differences import fill_template
from pairwright.schemas.namc import CnnConfig, DualEncoderConfig, NamcConfig, VocabularyConfig, VqganConfig
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.models.namc.files import CLIP, find_words
from pairwright.tasks.models.namc.places import (
    SIDE,
    PlaceEncoder,
    clip_numbers,
    load_codes,
    load_grids,
    load_patches,
    release_models,
)
from pairwright.tasks.models.namc.words import SPECIAL, ClipWords, bert_words
from pairwright.tasks.models.open_clip_embedder import create_tokenizer
from pairwright.tasks.training.namc.freeze_places import CROPS, SCHEMA, Frozen
from pairwright.tasks.training.namc.learn import Learner
from pairwright.tasks.training.namc.material import Batches, Material, Seen
from pairwright.tasks.training.namc.placed import read_placed, relate
from pairwright.tasks.training.namc.saved import make_large
from pairwright.tasks.training.tune_model import computing
from tests.bench.train_rows import make_words

if TYPE_CHECKING:
    from torch import Tensor

SPLIT = "train"
CODES, WORDS = 1024, 30_522
HALF = 22
"""Words of a half of a description, as those of rendered scenes have."""


Steps = Callable[[range], list[float]]
"""Does steps of a training, by their numbers, and returns their losses."""


@dataclass(frozen=True)
class Anew:
    """Be pictures that are looked at in each step."""

    crops: "Tensor"
    """``(rows, 2, 224, 224, 3)`` bytes."""
    grids: PlaceEncoder
    masking: "tuple[PlaceEncoder, Callable[[Tensor], Tensor]] | None"
    """VQGAN's codes, and what CLIP reads of crops; ``None``: nothing is masked."""
    precision: torch.dtype

    def features(self, rows: Sequence[int]) -> "Tensor":
        """Return what the CNN sees."""
        return self.see(rows).features

    def see(self, rows: Sequence[int]) -> Seen:
        """Return what CLIP is shown, and what the CNN and VQGAN make of it."""
        crops = self.crops[list(rows)].to(self.grids.device).flatten(0, 1)
        pixels = codes = torch.empty(len(crops), 0)
        with torch.no_grad(), computing(crops.device, self.precision):
            grids = self.grids.network(self.grids.numbers(crops))
            if self.masking:
                encoder, read = self.masking
                pixels, codes = read(crops), encoder.network(encoder.numbers(crops))
        found = (one.unflatten(0, (-1, 2)) for one in (pixels, grids, codes))
        return Seen(*found)


def make_config(folder: Path, *, batch: int, steps: int) -> TrainConfig:
    """Write the models, and return the settings of a run that pre-trains with them."""
    namc = NamcConfig(
        size="paper",
        relevance="start",
        clip=DualEncoderConfig(checkpoint=str(folder / "clip.safetensors")),
        cnn=CnnConfig(model="resnet101", checkpoint=str(folder / "resnet101.pth")),
        vqgan=VqganConfig(checkpoint=str(folder / "vqgan.ckpt")),
        vocabulary=VocabularyConfig(checkpoint=str(folder / "vocab.txt")),
    )
    _write_models(folder, namc)
    optimiser = {"per_device_train_batch_size": batch, "max_steps": steps, "learning_rate": 3e-4}
    return TrainConfig.model_validate({"objective": "namc", "namc": namc.model_dump(), "optimiser": optimiser})


def _write_models(folder: Path, namc: NamcConfig) -> None:
    import open_clip
    import timm
    from safetensors.torch import save_file
    from transformers import ChameleonVQVAE, ChameleonVQVAEConfig

    torch.manual_seed(0)
    clip: Any = open_clip.create_model(namc.clip.model, pretrained=None)
    save_file(clip.state_dict(), folder / "clip.safetensors")
    torch.save(timm.create_model(namc.cnn.model, pretrained=False).state_dict(), folder / "resnet101.pth")
    # taming's own encoder under its own names, as transformers has it.
    vqgan = ChameleonVQVAEConfig(
        embed_dim=256, num_embeddings=CODES, latent_channels=256, resolution=256, base_channels=128,
        channel_multiplier=[1, 1, 2, 2, 4], num_res_blocks=2, attn_resolutions=[16],
    )  # fmt: skip
    torch.save({"state_dict": ChameleonVQVAE(vqgan).state_dict()}, folder / "vqgan.ckpt")
    words = [*SPECIAL, *"abcdefghijklmnopqrstuvwxyz,.", *make_words(np.random.default_rng(0))]
    words += fill_template(("shows", "has"), "", "").lower().replace(",", " ").replace(".", " ").split()
    known = list(dict.fromkeys(words))
    known += [f"[unused{number}]" for number in range(WORDS - len(known))]
    (folder / "vocab.txt").write_text("\n".join(known) + "\n")


def freeze(folder: Path, rows: int, namc: NamcConfig) -> Frozen:
    """Write what a run would have frozen of that many rows, each about two images of its own."""
    rng = np.random.default_rng(0)
    crops = rng.integers(0, 256, (2 * rows, SIDE, SIDE, 3), dtype=np.uint8)
    np.save(folder / f"{CROPS}.npy", crops)
    about: dict[str, int] = {}
    for name, load, config in (
        ("grids", load_grids, namc.cnn),
        ("codes", load_codes, namc.vqgan),
        ("patches", load_patches, namc.clip),
    ):
        encoder = load(config.model_dump_json())
        np.save(folder / f"{name}.npy", encoder.encode(list(crops)))
        about[name] = encoder.width
    release_models()
    known = make_words(rng)

    def half() -> str:
        return " ".join(known[number] for number in rng.integers(len(known), size=HALF))

    described = [
        {"key": str(row), "split": SPLIT, "chosen": fill_template(("shows", "has"), half(), half())}
        | {"images": [str(2 * row), str(2 * row + 1)], "first": 2 * row, "second": 2 * row + 1}
        for row in range(rows)
    ]
    return Frozen(folder, pa.Table.from_pylist(described, schema=SCHEMA), about)


def make_trainer(config: TrainConfig, frozen: Frozen, *, anew: torch.dtype | None) -> Steps:
    """Return the steps of a training from its first one on.

    Args:
        config: the run's settings.
        frozen: its rows and tables.
        anew: the numbers in which images are looked at in each step; ``None``: in none, there are tables.
    """
    words = bert_words(find_words(config.namc.vocabulary))
    captioner = make_large(words, config.namc, features=frozen.about["grids"], codes=CODES, seed=0)
    device = load_grids(config.namc.cnn.model_dump_json()).device
    captioner.model.to(device)
    noise = captioner.model.noise
    clip = noise.clip if noise else None
    material, placed, _ = read_placed(frozen, SPLIT, halves=bool(noise), limit=0, seed=0, clip=clip)
    if anew:
        crops = torch.from_numpy(np.load(frozen.folder / f"{CROPS}.npy")).unflatten(0, (-1, 2))
        grids = load_grids(config.namc.cnn.model_dump_json())
        masking = (load_codes(config.namc.vqgan.model_dump_json()), clip_numbers(clip)) if clip else None
        material = Material(material.texts, Anew(crops, grids, masking, anew))
    tokenizer = ClipWords(create_tokenizer(config.namc.clip, field=CLIP))
    batches = Batches(material, clip=tokenizer, words=words, length=captioner.model.sizes.length)
    if noise and not anew:
        relate(batches, placed, frozen, config.namc.clip)
    learner = Learner(captioner, config, config.optimiser.max_steps)
    return partial(_learn, batches, learner)


def _learn(batches: Batches, learner: Learner, steps: range) -> list[float]:
    size = learner.config.optimiser.per_device_train_batch_size
    orders = ((step, 0.0, range(step * size, (step + 1) * size)) for step in steps)
    return [
        learner.step(batch, identity, seeds=batches.seeds(rows, 0), number=step)["loss"]
        for (step, _, rows), (batch, identity) in batches.ahead(orders)
    ]
