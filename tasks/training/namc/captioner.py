"""NAMC with its vocabulary: create, save, load, and describe pairs.

    FOLDER/model.safetensors
    FOLDER/words.json         the decoder's vocabulary
    FOLDER/namc.json          its sizes, maximum length, and at the paper's size its CNN

The CNN's weights are not saved, but found as in training. Needs PyTorch, open_clip and, for a CNN,
timm.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import open_clip
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from safetensors.torch import save_file
from torch import Tensor

from pairwright.schemas.errors import ModelError
from pairwright.schemas.namc_config import PAPER, SMALL, CnnConfig, NamcConfig
from pairwright.schemas.replies import Reply
from pairwright.schemas.rows import make_key
from pairwright.tasks.images.decode import RefusedImageError, decode_rgb
from pairwright.tasks.models import namc_places
from pairwright.tasks.models.checkpoints import compare_shapes, read_checkpoint, shapes_of
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.models.namc import Namc, NamcSizes, NoiseIdentifier
from pairwright.tasks.models.namc_words import DecoderWords, saved_words
from pairwright.tasks.models.weights import identify_files
from pairwright.tasks.serving.chat import Question
from pairwright.tasks.store.manifest import refuse_damage
from pairwright.tasks.training.freeze_rows import PAIR

WEIGHTS, WORDS, ABOUT = "model.safetensors", "words.json", "namc.json"
FIELD = "--from"
HEAD = 64  # width of an attention head at the paper's size
NOISE = "noise."  # prefix of the noise module's weights


class ModelMetadata(BaseModel, frozen=True):
    """Metadata of a saved model."""

    model: Literal["namc"] = "namc"
    sizes: NamcSizes
    noise: bool  # whether the noise module is saved, too
    cnn: CnnConfig | None  # CNN of the paper's size; ``None``: the small size reads pixels
    length: Annotated[int, Field(ge=1)]  # maximum tokens of a description


@dataclass(frozen=True)
class Captioner:
    """Model and vocabulary; ``cnn`` and ``length`` as in ``ModelMetadata``."""

    model: Namc
    words: DecoderWords
    cnn: CnnConfig | None
    length: int

    @property
    def device(self) -> torch.device:
        """Return the model's device."""
        return next(self.model.parameters()).device

    def describe(self, features: Tensor) -> list[str]:
        """Return the descriptions of pairs, from ``(B, 2, places, features)``."""
        words = self.words
        model = self.model.eval()
        with torch.no_grad():
            compared = model.compare(features.to(self.device))
        descriptions = model.describer.generate(
            compared,
            banned=(words.mask, words.pad, words.unknown, words.start),
            start=words.start,
            end=words.end,
            length=self.length,
        )
        return [words.decode(tokens) for tokens in descriptions]


def small_sizes(vocabulary: int) -> NamcSizes:
    """Return the sizes of the small model."""
    return NamcSizes(
        width=96,
        heads=4,
        dropout=0.0,
        places=(namc_places.SMALL_SIDE // namc_places.PATCH) ** 2,
        features=3 * namc_places.PATCH**2,
        codes=namc_places.LEVELS**3,
        vocabulary=vocabulary,
    )


def make_captioner(
    words: DecoderWords, config: NamcConfig, widths: Mapping[str, int], *, seed: int
) -> Captioner:
    """Return a new model, determined by the seed.

    ``widths``: numbers of features and codes at the paper's size, by table.
    """
    sizes = small_sizes(words.size)
    cnn = None
    if config.size == PAPER:
        sizes = NamcSizes(
            width=config.hidden_size,
            heads=config.hidden_size // HEAD,
            vocabulary=words.size,
            features=widths["grids"],
            codes=widths.get("codes", NamcSizes().codes),
        )
        cnn = config.cnn
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        noise = _make_noise(config, sizes.width) if config.noise_enabled else None
        return Captioner(Namc(sizes, noise), words, cnn, config.max_new_tokens)


def _make_noise(config: NamcConfig, width: int) -> NoiseIdentifier:
    if config.size == PAPER:
        clip = namc_places.make_place_clip(config.clip)
    else:
        clip = open_clip.CLIP(**namc_places.SMALL_CLIP)
    return NoiseIdentifier(clip, width=width)


def save_captioner(captioner: Captioner, folder: Path) -> None:
    """Write a captioner into an existing folder."""
    model = captioner.model
    weights = {
        name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()
    }
    save_file(weights, folder / WEIGHTS)
    (folder / WORDS).write_text(captioner.words.as_json(), encoding="utf-8")
    metadata = ModelMetadata(
        sizes=model.sizes, noise=model.noise is not None, cnn=captioner.cnn, length=captioner.length
    )
    (folder / ABOUT).write_text(metadata.model_dump_json(indent=1), encoding="utf-8")


def is_namc(folder: Path) -> bool:
    """Return whether a folder holds a NAMC."""
    return (folder / ABOUT).is_file()


def read_metadata(folder: Path) -> ModelMetadata:
    """Return the metadata of a saved model."""
    try:
        return ModelMetadata.model_validate_json((folder / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{FIELD}: {folder} is not a NAMC: {error}") from error


def load_captioner(folder: Path, config: NamcConfig | None = None) -> Captioner:
    """Return a saved model.

    ``config``: of a run that continues it, to check its size and noise module.
    """
    refuse_damage(folder, field=FIELD)
    metadata = read_metadata(folder)
    words = saved_words(folder / WORDS)
    size = PAPER if metadata.cnn else SMALL
    if config is None:
        config = NamcConfig(size=size, noise_enabled=False)
    if size != config.size or (config.noise_enabled and not metadata.noise):
        present = "with" if metadata.noise else "without"
        needed = " with it" if config.noise_enabled else ""
        raise ModelError(
            f"{FIELD}: {folder} holds a NAMC of --size {size} {present} its noise module, "
            f"not of --size {config.size}{needed}"
        )
    sizes = metadata.sizes
    if sizes.width % sizes.heads or sizes.vocabulary != words.size:
        raise ModelError(
            f"{FIELD}: {folder / ABOUT}: invalid sizes for {words.size} words: {sizes}"
        )
    with torch.device("meta"):  # allocate nothing before the weights' sizes are checked
        model = Namc(sizes)
    if config.noise_enabled:
        model.noise = _make_noise(config, sizes.width)
    load_weights(model, folder, assign=True)
    return Captioner(model, words, metadata.cnn, metadata.length)


def load_weights(model: Namc, folder: Path, *, assign: bool = False) -> None:
    """Copy saved weights into the model, or ``assign`` them.

    Those of a noise module that the model lacks are ignored.
    """
    weights = dict[str, Tensor]()
    for name, value in read_checkpoint(folder / WEIGHTS, field=FIELD).items():
        if model.noise is not None or not name.startswith(NOISE):
            weights[name] = value.float()
    try:
        compare_shapes(shapes_of(weights), shapes_of(model.state_dict()))
    except ModelError as error:
        raise ModelError(f"{FIELD}: {folder / WEIGHTS}: {error}") from error
    model.load_state_dict(weights, assign=assign)


def identify_captioner(folder: Path) -> str:
    """Return the identity of a saved model."""
    _load_cached(folder)
    return make_key("namc", identify_files([folder / WEIGHTS]))


def answer_pairs(
    questions: Iterable[tuple[str, Question]], *, folder: Path, batch: int
) -> Iterator[Reply]:
    """Yield a reply to each question, the difference between its two images, ``batch`` at once.

    The question's text is ignored. Questions about other than two images are refused. Fast and
    deterministic, hence not cached.
    """
    captioner = _load_cached(folder)
    rest = iter(questions)
    while some := list(islice(rest, batch)):
        crops: dict[str, list[NDArray[np.uint8]]] = {}
        for name, question in some:
            cropped = _crop_pair(captioner, name, question)
            if isinstance(cropped, Reply):
                yield cropped
            else:
                crops[name] = cropped
        if crops:
            texts = captioner.describe(_encode_pairs(captioner, list(crops.values())))
            for name, text in zip(crops, texts, strict=True):
                yield Reply(name=name, text=text)


def _crop_pair(
    captioner: Captioner, name: str, question: Question
) -> list[NDArray[np.uint8]] | Reply:
    """Return the crops of a question's images, or the reply that says why there are none."""
    count = len(question.images)
    if count != PAIR:
        return Reply(name=name, state="refused", detail=f"NAMC describes two images, not {count}")
    crop = namc_places.CROP if captioner.cnn else namc_places.crop_small
    try:
        return [crop(decode_rgb(data)) for data in question.images]
    except RefusedImageError as error:
        return Reply(name=name, state="no image", detail=str(error))


def _encode_pairs(captioner: Captioner, pairs: Sequence[list[NDArray[np.uint8]]]) -> Tensor:
    """Return the features of pairs, ``(B, 2, places, features)``."""
    crops = list[NDArray[np.uint8]]()  # first and second images alternate
    for pair in pairs:
        crops += pair
    if captioner.cnn:
        encoder = namc_places.load_grids(captioner.cnn.model_dump_json())
        features = torch.from_numpy(encoder.encode(crops))
    else:
        features = torch.from_numpy(namc_places.split_patches(np.stack(crops))) / 127.5 - 1
    return features.unflatten(0, (-1, PAIR))


@lru_cache(maxsize=1)
def _load_cached(folder: Path) -> Captioner:
    """Load the model and its CNN, so that missing files are reported before the first question."""
    captioner = load_captioner(folder)
    captioner.model.to(choose_device())
    if captioner.cnn:
        namc_places.load_grids(captioner.cnn.model_dump_json())
    return captioner
