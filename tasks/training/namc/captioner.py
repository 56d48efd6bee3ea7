"""A NAMC with its vocabulary: made, saved, loaded, and asked.

    FOLDER/model.safetensors
    FOLDER/words.json         the decoder's vocabulary
    FOLDER/namc.json          what it is, how it writes; at the paper's size how large, and which CNN sees its images

The CNN's weights are not kept: they are found where they were. Needs PyTorch, open_clip and, for a CNN, timm.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import open_clip
import torch
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter
from safetensors.torch import save_file
from torch import Tensor

from pairwright.schemas.errors import ModelError
from pairwright.schemas.namc import PAPER, SMALL, CnnConfig, NamcConfig
from pairwright.schemas.replies import Reply
from pairwright.schemas.rows import make_key
from pairwright.tasks.models.checkpoints import read_checkpoint
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.models.namc import Decoding, Namc, NamcSizes, NoiseIdentifier
from pairwright.tasks.models.namc_places import load_grids, make_clip
from pairwright.tasks.models.namc_words import DecoderWords, saved_words
from pairwright.tasks.models.tensor_shapes import name_some
from pairwright.tasks.serving.chat import Question
from pairwright.tasks.store.images import RefusedImageError
from pairwright.tasks.training.freeze_rows import PAIR
from pairwright.tasks.training.namc.batches import PATCH, small_sizes, to_patches
from pairwright.tasks.training.namc.frozen import SMALL_SIDE, crop_large, crop_small

WEIGHTS, WORDS, ABOUT = "model.safetensors", "words.json", "namc.json"
FIELD = "--from"
HEAD, MAX_LAYERS, MAX_LENGTH = 64, 64, 80
"""Dimensions of a head at the paper's size; layers that a saved model may have; tokens that it writes."""
NOISE = "noise."
"""How the names of the noise module's weights begin."""
SMALL_CLIP: dict[str, Any] = {
    "embed_dim": 64,
    "vision_cfg": {"image_size": SMALL_SIDE, "layers": 3, "width": 96, "head_width": 24, "patch_size": PATCH},
    "text_cfg": {"context_length": 77, "vocab_size": 49_408, "width": 64, "heads": 2, "layers": 2},
}
"""A dual encoder of CLIP's form, learnt from scratch (4 M weights, of which 3 M are words)."""


@dataclass(frozen=True)
class Captioner:
    """A model and its vocabulary."""

    model: Namc
    words: DecoderWords
    cnn: CnnConfig | None = None
    """What sees the images, at the paper's size; ``None``: it is small, and sees them itself."""
    length: int = MAX_LENGTH
    beams: int = 1
    """How it writes, as its run was set: maximum tokens, and descriptions that are kept meanwhile."""

    @property
    def device(self) -> torch.device:
        """Return where it is."""
        return next(self.model.parameters()).device

    def write(self, features: Tensor) -> list[str]:
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


def make_captioner(words: DecoderWords, config: NamcConfig, widths: Mapping[str, int], *, seed: int) -> Captioner:
    """Return a fresh one, the same for the same seed; ``widths``: features and codes of the paper's size, by table.

    Raises:
        ModelError: CLIP's weights are missing, damaged, or of another form.
    """
    sizes, width = small_sizes(words.size), config.hidden_size
    if config.size == PAPER:
        own = {"features": widths["grids"], "codes": widths.get("codes", NamcSizes().codes)}
        sizes = NamcSizes(width=width, heads=width // HEAD, vocabulary=words.size, **own)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        noise = _make_noise(config, sizes.width) if config.noise_enabled else None
        return Captioner(Namc(sizes, noise), words, config.cnn if config.size == PAPER else None)


def _make_noise(config: NamcConfig, width: int) -> NoiseIdentifier:
    clip = make_clip(config.clip) if config.size == PAPER else open_clip.CLIP(**SMALL_CLIP)
    return NoiseIdentifier(clip, width=width)


def save_captioner(captioner: Captioner, folder: Path) -> None:
    """Write it into a folder that is there."""
    weights = {name: value.detach().cpu().contiguous() for name, value in captioner.model.state_dict().items()}
    save_file(weights, folder / WEIGHTS)
    (folder / WORDS).write_text(captioner.words.as_json(), encoding="utf-8")
    about = About(
        config=PAPER if captioner.cnn else SMALL,
        noise=captioner.model.noise is not None,
        sizes=captioner.model.sizes if captioner.cnn else None,
        cnn=captioner.cnn,
        length=captioner.length,
        beams=captioner.beams,
    )
    values = asdict(about) | {"cnn": about.cnn.model_dump() if about.cnn else None}
    (folder / ABOUT).write_text(json.dumps(values, indent=1), encoding="utf-8")


@dataclass(frozen=True)
class About:
    """What a saved one says of itself."""

    config: Literal["small", "paper"]
    noise: bool
    model: Literal["namc"] = "namc"
    sizes: NamcSizes | None = None
    cnn: CnnConfig | None = None
    length: Annotated[int, Field(ge=1, le=MAX_LENGTH)] = MAX_LENGTH
    beams: Annotated[int, Field(ge=1, le=1000)] = 1


def is_namc(folder: Path) -> bool:
    """Say whether a folder holds a NAMC."""
    return (folder / ABOUT).is_file()


def read_about(folder: Path) -> About:
    """Return what a saved one says of itself.

    Raises:
        ModelError: it cannot be read, or the folder holds another model.
    """
    try:
        about = TypeAdapter(About).validate_json((folder / ABOUT).read_text(encoding="utf-8"))
        if (about.config == PAPER) != bool(about.sizes and about.cnn):
            raise ValueError(f"{ABOUT} does not say how large it is, or which CNN sees its images")
    except (OSError, ValueError) as error:
        raise ModelError(f"{FIELD}: {folder} holds no NAMC: {error}") from error
    return about


def load_captioner(folder: Path, config: NamcConfig | None = None) -> Captioner:
    """Return a saved one, without its noise module.

    Args:
        folder: where it is.
        config: of a run that goes on with it: the size that it must have, and whether its noise module is wanted.

    Raises:
        ModelError: the folder holds another model, or is damaged.
    """
    about, words = read_about(folder), saved_words(folder / WORDS)
    config = config or NamcConfig(size=about.config, noise_enabled=False)
    if about.config != config.size or (config.noise_enabled and not about.noise):
        raise ModelError(
            f"{FIELD}: {folder} holds a NAMC of --size {about.config} {'with' if about.noise else 'without'} its "
            f"noise module, not of --size {config.size}{' with it' if config.noise_enabled else ''}"
        )
    sizes = about.sizes or small_sizes(words.size)
    try:
        if not 0 < sizes.layers <= MAX_LAYERS or sizes.heads < 1 or sizes.width % sizes.heads:
            raise ValueError(f"{sizes.layers} layers of {sizes.heads} heads")
        if sizes.vocabulary != words.size:
            raise ValueError(f"{sizes.vocabulary} words, {WORDS} has {words.size}")
        with torch.device("meta"):  # no memory is taken before it is known that the weights are of these sizes
            model = Namc(sizes)
    except (ValueError, RuntimeError, TypeError, OverflowError) as error:
        raise ModelError(f"{FIELD}: {folder / ABOUT}: {error}") from error
    model.noise = _make_noise(config, sizes.width) if config.noise_enabled else None
    load_weights(model, folder, assign=True)
    return Captioner(model, words, about.cnn, about.length, about.beams)


def load_weights(model: Namc, folder: Path, *, assign: bool = False) -> None:
    """Put saved weights into a model, or have it take them; those of a noise module that it has not are passed over.

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
    model.load_state_dict({name: value.float() for name, value in weights.items()}, assign=assign)


def identify(folder: Path) -> str:
    """Return what tells a NAMC from others.

    Raises:
        ModelError: it cannot be loaded.
    """
    _load(folder)
    return make_key("namc", blake2b((folder / WEIGHTS).read_bytes(), digest_size=16).hexdigest())


def answer_pairs(questions: Iterable[tuple[str, Question]], *, folder: Path, batch: int) -> Iterator[Reply]:
    """Yield a reply to each question, so many at once: whatever is asked about two images, how they differ.

    Of other than two images it has nothing to say. It is fast and always says the same, so that nothing is kept.

    Raises:
        ModelError: the model cannot be loaded.
    """
    captioner, source = _load(folder), iter(questions)
    crop = crop_large if captioner.cnn else crop_small
    while some := list(islice(source, batch)):
        crops: dict[str, list[NDArray[np.uint8]]] = {}
        for name, question in some:
            if len(question.images) != PAIR:
                detail = f"NAMC describes two images, and here are {len(question.images)}"
                yield Reply(name=name, state="refused", detail=detail)
                continue
            try:
                crops[name] = [crop(data) for data in question.images]
            except RefusedImageError as error:
                yield Reply(name=name, state="no image", detail=str(error))
        if crops:
            said = captioner.write(_features(captioner, [one for pair in crops.values() for one in pair]))
            yield from (Reply(name=name, text=text) for name, text in zip(crops, said, strict=True))


def _features(captioner: Captioner, crops: Sequence[NDArray[np.uint8]]) -> Tensor:
    """Return what is seen of pairs of crops, first and second image by turns: ``(B, 2, places, features)``."""
    if captioner.cnn:
        found = torch.from_numpy(load_grids(captioner.cnn.model_dump_json()).encode(crops))
    else:
        found = to_patches(torch.from_numpy(np.stack(crops)))
    return found.unflatten(0, (-1, PAIR))


@lru_cache(maxsize=1)
def _load(folder: Path) -> Captioner:
    """Load it; its CNN, too, so that what is missing is said before anything is asked."""
    captioner = load_captioner(folder)
    if captioner.cnn:
        try:
            load_grids(captioner.cnn.model_dump_json())
        except ModelError as error:
            raise ModelError(f"{folder / ABOUT}: the CNN that sees its images is not as it was: {error}") from error
    return replace(captioner, model=captioner.model.to(choose_device()))
