"""Keep a NAMC: weights, vocabulary, sizes.

    FOLDER/model.safetensors
    FOLDER/words.json         the decoder's vocabulary
    FOLDER/namc.json          what it is, how it writes; at the paper's size how large, and which CNN sees its images

Needs PyTorch and open_clip. The CNN's weights are not kept: they are found where they were.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import open_clip
import torch
from pydantic import Field, TypeAdapter
from safetensors.torch import save_file

from pairwright.schemas.errors import ModelError
from pairwright.schemas.namc import PAPER, SMALL, CnnConfig, DualEncoderConfig, NamcConfig
from pairwright.tasks.models.checkpoints import read_checkpoint
from pairwright.tasks.models.namc.describe import Decoding
from pairwright.tasks.models.namc.namc import Namc
from pairwright.tasks.models.namc.noise import NoiseIdentifier
from pairwright.tasks.models.namc.places import make_clip
from pairwright.tasks.models.namc.sizes import NamcSizes
from pairwright.tasks.models.namc.words import DecoderWords, saved_words
from pairwright.tasks.models.tensor_shapes import compare_shapes, name_some
from pairwright.tasks.training.namc.pictures import CLIP, sizes_for

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS, WORDS, ABOUT = "model.safetensors", "words.json", "namc.json"
FIELD = "--from"
HEAD, MOST_LAYERS = 64, 64
"""Dimensions of a head at the paper's size; layers that a saved model may have."""
MOST_LENGTH, MOST_BEAMS = 80, 1000
"""Of what it writes."""
NOISE = "noise."
"""How the names of the noise module's weights begin."""


@dataclass(frozen=True)
class Captioner:
    """Be a model and its vocabulary."""

    model: Namc
    words: DecoderWords
    cnn: CnnConfig | None = None
    """What sees the images, at the paper's size; ``None``: it is small, and sees them itself."""
    length: int = MOST_LENGTH
    beams: int = 1
    """How it writes, as its run was set: tokens at the most, and descriptions that are kept meanwhile."""

    @property
    def config(self) -> str:
        """Return which configuration it is of."""
        return PAPER if self.cnn else SMALL

    @property
    def device(self) -> torch.device:
        """Return where it is."""
        return next(self.model.parameters()).device

    def write(self, features: "Tensor") -> list[str]:
        """Return what it says of pairs, all at once; ``features`` are ``(B, 2, places, features)``."""
        words = self.words
        how = Decoding(
            start=words.start,
            end=words.end,
            banned=(words.mask, words.pad, words.unknown, words.start),
            length=self.length,
            beams=self.beams,
        )
        return [words.read(tokens) for tokens in self.model.eval().write(features.to(self.device), how)]


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


def make_large(words: DecoderWords, config: NamcConfig, *, features: int, codes: int, seed: int) -> Captioner:
    """Return a fresh one of the paper's size, the same for the same seed.

    Args:
        words: its vocabulary.
        config: its width, and the models that it is made with.
        features: channels of its CNN.
        codes: of its VQGAN.
        seed: of its weights.

    Raises:
        ModelError: CLIP's weights are missing, damaged, or of another form.
    """
    width = config.hidden_size
    sizes = NamcSizes(width=width, heads=width // HEAD, features=features, codes=codes, vocabulary=words.size)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Captioner(Namc(sizes, _noise(config.clip, width) if config.noise_enabled else None), words, config.cnn)


def _noise(clip: DualEncoderConfig, width: int) -> NoiseIdentifier:
    return NoiseIdentifier(make_clip(clip), width=width)


def save_captioner(captioner: Captioner, folder: Path) -> None:
    """Write it into a folder that is there."""
    weights = {name: value.detach().cpu().contiguous() for name, value in captioner.model.state_dict().items()}
    save_file(weights, folder / WEIGHTS)
    (folder / WORDS).write_text(captioner.words.as_json(), encoding="utf-8")
    about: dict[str, Any] = {"model": "namc", "config": captioner.config, "noise": captioner.model.noise is not None}
    about |= {"length": captioner.length, "beams": captioner.beams}
    if captioner.cnn:
        about |= {"sizes": asdict(captioner.model.sizes), "cnn": captioner.cnn.model_dump()}
    (folder / ABOUT).write_text(json.dumps(about, indent=1), encoding="utf-8")


@dataclass(frozen=True)
class About:
    """Be what a saved one says of itself."""

    config: Literal["small", "paper"]
    noise: bool
    model: Literal["namc"] = "namc"
    sizes: NamcSizes | None = None
    cnn: CnnConfig | None = None
    length: Annotated[int, Field(ge=1, le=MOST_LENGTH)] = MOST_LENGTH
    beams: Annotated[int, Field(ge=1, le=MOST_BEAMS)] = 1


def read_about(folder: Path) -> About:
    """Return what a saved one says of itself.

    Raises:
        ModelError: it cannot be read, or the folder holds another model.
    """
    try:
        about = TypeAdapter(About).validate_json((folder / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{FIELD}: {folder} holds no NAMC: {error}") from error
    if (about.config == PAPER) != bool(about.sizes and about.cnn):
        raise ModelError(f"{FIELD}: {folder / ABOUT} does not say how large it is, or which CNN sees its images")
    return about


def load_captioner(folder: Path, *, noise: bool = False, config: NamcConfig | None = None) -> Captioner:
    """Return a saved one.

    Args:
        folder: where it is.
        noise: whether its noise module is wanted.
        config: of a run that goes on with it: the configuration that it must be of, and its CLIP.

    Raises:
        ModelError: the folder holds another model, or is damaged.
    """
    about, words, weights = read_about(folder), saved_words(folder / WORDS), _read_weights(folder)
    asked = config.size if config else about.config
    if about.config != asked or (noise and not about.noise):
        raise ModelError(
            f"{FIELD}: {folder} holds a NAMC of --size {about.config} {'with' if about.noise else 'without'} its "
            f"noise module, not of --size {asked}{' with it' if noise else ''}"
        )
    if about.sizes is None:
        captioner = make_captioner(words, noise=noise, seed=0)
    else:
        _check_sizes(about.sizes, words, weights, folder)
        clip = (config or NamcConfig()).clip
        model = Namc(about.sizes, _noise(clip, about.sizes.width) if noise else None)
        captioner = Captioner(model, words, about.cnn)
    _fill(captioner.model, weights, folder)
    return replace(captioner, length=about.length, beams=about.beams)


def _check_sizes(sizes: NamcSizes, words: DecoderWords, weights: "dict[str, Tensor]", folder: Path) -> None:
    """Refuse sizes that are not those of the weights, before memory is taken for a model of that size.

    Raises:
        ModelError: they are not.
    """
    found = {name: tuple(value.shape) for name, value in weights.items() if not name.startswith(NOISE)}
    try:
        if not 0 < sizes.layers <= MOST_LAYERS or sizes.heads < 1 or sizes.width % sizes.heads:
            raise ValueError(f"{sizes.layers} layers of {sizes.heads} heads")
        if not sizes.vocabulary == words.size > words.highest:
            raise ValueError(f"{sizes.vocabulary} words, {WORDS} has {words.size}")
        with torch.device("meta"):
            wanted = {name: tuple(value.shape) for name, value in Namc(sizes).state_dict().items()}
        compare_shapes(found, wanted)
    except (ModelError, ValueError, RuntimeError, TypeError, OverflowError) as error:
        raise ModelError(f"{FIELD}: {folder / ABOUT}: its sizes are not those of the weights: {error}") from error


def load_weights(model: Namc, folder: Path) -> None:
    """Put saved weights into a model; those of a noise module that it has not are passed over.

    Raises:
        ModelError: they are another model's, damaged, or no numbers.
    """
    _fill(model, _read_weights(folder), folder)


def _read_weights(folder: Path) -> "dict[str, Tensor]":
    return read_checkpoint(folder / WEIGHTS, field=FIELD)


def _fill(model: Namc, weights: "dict[str, Tensor]", folder: Path) -> None:
    if model.noise is None:
        weights = {name: value for name, value in weights.items() if not name.startswith(NOISE)}
    own = model.state_dict()
    strange = list(own.keys() ^ weights.keys())
    strange += [name for name in own.keys() & weights.keys() if own[name].shape != weights[name].shape]
    strange += [name for name, value in weights.items() if not torch.isfinite(value).all()]
    if strange:
        raise ModelError(f"{FIELD}: {folder / WEIGHTS}: does not fit, or is no number: {name_some(sorted(strange))}")
    model.load_state_dict(weights)
