"""Find the weights that NAMC of the paper's size is made with, and say which they are.

Reads names and bytes of local files and the Hub's local cache; loads nothing, and fetches nothing: what is missing is
named, with what fetches it.
"""

from pathlib import Path
from typing import TypeVar

from pairwright.schemas.errors import ModelError
from pairwright.schemas.namc import CnnConfig, NamcConfig, VocabularyConfig, VqganConfig
from pairwright.tasks.models.open_clip_embedder import pin_clip
from pairwright.tasks.models.weights import (
    HubFiles,
    absolute,
    check_revision,
    find_on_hub,
    identify_files,
    require_packages,
)

CLIP, CNN, VQGAN, VOCABULARY = "namc.clip", "namc.cnn", "namc.vqgan", "namc.vocabulary"
"""Fields of the settings, for messages."""
KNOWN_WORDS = {"google-bert/bert-base-uncased": "86b5e0934494bd15c9632b12f734a8a67f723594"}
"""The commits that are taken where no revision is named."""
TIMM_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
WHERE_VQGAN = "https://github.com/CompVis/taming-transformers (vqgan_imagenet_f16_1024, checkpoints/last.ckpt)"
Named = TypeVar("Named", CnnConfig, VqganConfig, VocabularyConfig)


def pin_namc(config: NamcConfig, *, starts: bool) -> NamcConfig:
    """Return the settings with the revisions of the models that a run needs, all of them on this machine.

    Args:
        config: of the paper's size.
        starts: whether the run starts from another one, which has a vocabulary.

    Raises:
        ModelError: a package or a file is missing, or is not the one that the settings name.
    """
    require_packages("namc", "torch", "timm", "open_clip", "tokenizers")
    found: dict[str, object] = {"cnn": pin_cnn(config.cnn)}
    if config.noise_enabled:
        found["clip"] = pin_clip(config.clip, download=False, field=CLIP)
    if config.noise_enabled and config.reconstruction_enabled:
        found["vqgan"] = pin_vqgan(config.vqgan)
    if not starts:
        words = find_words(config.vocabulary)
        found["vocabulary"] = _pinned(config.vocabulary, words, VOCABULARY)
    return config.model_copy(update=found)


def pin_cnn(config: CnnConfig) -> CnnConfig:
    """Return which CNN there is.

    Raises:
        ModelError: its weights are not on this machine, or others are.
    """
    return _pinned(config, find_cnn(config), CNN)


def pin_vqgan(config: VqganConfig) -> VqganConfig:
    """Return which VQGAN there is.

    Raises:
        ModelError: its file is not named, not there, or another.
    """
    return _pinned(config, find_vqgan(config), VQGAN)


def find_cnn(config: CnnConfig) -> Path:
    """Return the file of a CNN's weights.

    Raises:
        ModelError: it is not on this machine.
    """
    if config.checkpoint:
        return _local(config.checkpoint, CNN)
    if "." not in config.model:
        raise ModelError(
            f"{CNN}.model: {config.model}: names no weights. Add their name, as in resnet101.tv_in1k, or give "
            f"{CNN}.checkpoint"
        )
    files = HubFiles(
        field=CNN, repository=f"timm/{config.model}", revision=config.revision, weights=TIMM_WEIGHTS, of_build=False
    )
    return find_on_hub(files, download=False)


def find_vqgan(config: VqganConfig) -> Path:
    """Return the file of a VQGAN.

    Raises:
        ModelError: it is not named, or not there.
    """
    if not config.checkpoint:
        raise ModelError(
            f"{VQGAN}.checkpoint: is not named. It is on no Hub: fetch it by hand from {WHERE_VQGAN}, and say where it "
            f"is: --set {VQGAN}.checkpoint=FILE"
        )
    return _local(config.checkpoint, VQGAN)


def find_words(config: VocabularyConfig) -> Path:
    """Return a BERT's ``vocab.txt``.

    Raises:
        ModelError: it is not on this machine.
    """
    if config.checkpoint:
        return _local(config.checkpoint, VOCABULARY)
    files = HubFiles(
        field=VOCABULARY,
        repository=config.model,
        revision=config.revision or KNOWN_WORDS.get(config.model, ""),
        weights=("vocab.txt",),
        of_build=False,
    )
    return find_on_hub(files, download=False)


def check_file(path: Path, config: CnnConfig | VqganConfig, field: str) -> None:
    """Refuse a local file that is not the one that its settings name.

    Raises:
        ModelError: it is another.
    """
    if config.checkpoint:
        check_revision(field, config.revision, identify_files([path]), path)


def _local(checkpoint: str, field: str) -> Path:
    path = Path(checkpoint).expanduser()
    if not path.is_file():
        raise ModelError(f"{field}.checkpoint: {path}: no such file")
    return path


def _pinned(config: Named, found: Path, field: str) -> Named:
    """Return the settings with the revision of what was found: the hash of a local file, or the Hub's commit."""
    if not config.checkpoint:
        return config.model_copy(update={"revision": found.parent.name})
    revision = identify_files([found])
    check_revision(field, config.revision, revision, found)
    return config.model_copy(update={"revision": revision, "checkpoint": absolute(config.checkpoint)})
