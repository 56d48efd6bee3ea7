"""Keep a small NAMC: weights, vocabulary, sizes.

    FOLDER/model.safetensors
    FOLDER/words.json         the decoder's vocabulary
    FOLDER/namc.json          what it is

Needs PyTorch and open_clip.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import open_clip
import torch
from safetensors.torch import save_file

from schemas.errors import ModelError
from schemas.namc import NamcConfig
from tasks.models.checkpoints import read_checkpoint
from tasks.models.namc.describe import Decoding
from tasks.models.namc.namc import Namc
from tasks.models.namc.noise import NoiseIdentifier
from tasks.models.namc.words import DecoderWords, saved_words
from tasks.models.tensor_shapes import name_some
from tasks.training.namc.pictures import CLIP, sizes_for

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS, WORDS, ABOUT = "model.safetensors", "words.json", "namc.json"
FIELD = "--from"
NOISE = "noise."
"""How the names of the noise module's weights begin."""


@dataclass(frozen=True)
class Captioner:
    """Be a model and its vocabulary."""

    model: Namc
    words: DecoderWords

    def write(self, features: "Tensor", config: NamcConfig) -> list[str]:
        """Return what it says of pairs, all at once; ``features`` are ``(B, 2, places, features)``."""
        words = self.words
        how = Decoding(
            start=words.start,
            end=words.end,
            banned=(words.mask, words.pad, words.unknown, words.start),
            length=config.length,
            beams=config.beams,
        )
        return [words.read(tokens) for tokens in self.model.eval().write(features, how)]


def make_captioner(words: DecoderWords, *, noise: bool, seed: int) -> Captioner:
    """Return a fresh one, the same for the same seed.

    Args:
        words: its vocabulary.
        noise: whether it has a module that finds noise.
        seed: of its weights.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        sizes = sizes_for(words.size)
        found = NoiseIdentifier(open_clip.CLIP(**CLIP), width=sizes.width) if noise else None
        return Captioner(Namc(sizes, found), words)


def save_captioner(captioner: Captioner, folder: Path) -> None:
    """Write it into a folder that is there."""
    weights = {name: value.detach().cpu().contiguous() for name, value in captioner.model.state_dict().items()}
    save_file(weights, folder / WEIGHTS)
    (folder / WORDS).write_text(captioner.words.as_json(), encoding="utf-8")
    about = {"model": "namc", "config": "small", "noise": captioner.model.noise is not None}
    (folder / ABOUT).write_text(json.dumps(about, indent=1), encoding="utf-8")


def load_captioner(folder: Path, *, noise: bool = False) -> Captioner:
    """Return a saved one, with its noise module if that is wanted.

    Raises:
        ModelError: the folder holds another model, or is damaged.
    """
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        known = about["model"] == "namc" and about["config"] == "small"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{FIELD}: {folder} holds no NAMC: {error}") from error
    if not known or (noise and not about.get("noise")):
        raise ModelError(f"{FIELD}: {folder} holds another NAMC than is asked for: {about}")
    captioner = make_captioner(saved_words(folder / WORDS), noise=noise, seed=0)
    load_weights(captioner.model, folder)
    return captioner


def load_weights(model: Namc, folder: Path) -> None:
    """Put saved weights into a model; those of a noise module that it has not are passed over.

    Raises:
        ModelError: they are another model's, damaged, or no numbers.
    """
    weights = read_checkpoint(folder / WEIGHTS, field=FIELD)
    if model.noise is None:
        weights = {name: value for name, value in weights.items() if not name.startswith(NOISE)}
    own = model.state_dict()
    strange = list(own.keys() ^ weights.keys())
    strange += [name for name in own.keys() & weights.keys() if own[name].shape != weights[name].shape]
    strange += [name for name, value in weights.items() if not torch.isfinite(value).all()]
    if strange:
        raise ModelError(f"{FIELD}: {folder / WEIGHTS}: does not fit, or is no number: {name_some(sorted(strange))}")
    model.load_state_dict(weights)
