"""Settings of NAMC, a captioner of differences trained from scratch (paper 001)."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pairwright.schemas.encoder_config import ClipConfig
from pairwright.schemas.section import Section, Share

SMALL, PAPER = "small", "paper"


class DualEncoderConfig(ClipConfig):
    """CLIP that initialises the noise module; it must see 224 x 224 pixels in 14 x 14 patches."""

    model: str = "ViT-B-16-quickgelu"
    """open_clip's name of the model, or a JSON file that describes one (OpenAI's weights need a
    "-quickgelu" one)."""
    uncounted: ClassVar[frozenset[str]] = frozenset({"checkpoint"})


class WeightsConfig(Section):
    """Weights on this machine."""

    checkpoint: str = ""
    """Local file instead of the Hub's, as its library or the paper's authors publish it."""
    revision: str = ""
    """Commit on the Hub, or hash of the local file; empty: the one on this machine."""
    uncounted: ClassVar[frozenset[str]] = frozenset({"checkpoint"})


class CnnConfig(WeightsConfig):
    """CNN that sees the grid of an image: its third stage, 14 x 14 places of 224 x 224 pixels."""

    model: Annotated[str, Field(pattern=r"^\w+(\.\w+)?$")] = "resnet101.tv_in1k"
    """timm's name of the model and its weights on the Hub; with a checkpoint, the model's name
    alone is enough."""


class VqganConfig(WeightsConfig):
    """VQGAN of taming-transformers, whose codes are the targets of masked places.

    Its checkpoint, ``last.ckpt`` of ``vqgan_imagenet_f16_1024``, has to be downloaded by hand.
    """


class VocabularyConfig(WeightsConfig):
    """Words that the decoder writes: a BERT's ``vocab.txt``."""

    model: Annotated[str, Field(min_length=1)] = "google-bert/bert-base-uncased"
    """Name on the Hub of the model whose vocabulary it is, read from the local cache."""


class NamcConfig(Section):
    """How NAMC is trained, and how it writes."""

    size: Literal["small", "paper"] = SMALL
    """Small learns from raw patches, on a CPU; paper (64.2 M weights beside CLIP's) from a CNN, a
    VQGAN and CLIP."""
    hidden_size: Annotated[int, Field(ge=64, le=4096, multiple_of=64)] = 768
    """Dimension of encoder and decoder with size paper, unless the run starts from another one;
    small has 96."""
    clip: DualEncoderConfig = DualEncoderConfig()
    cnn: CnnConfig = CnnConfig()
    vqgan: VqganConfig = VqganConfig()
    vocabulary: VocabularyConfig = VocabularyConfig()
    noise_enabled: bool = True
    """Whether mismatched places and words are masked (NIM) and places reconstructed; default with
    ``start``: false."""
    reconstruction_enabled: bool = True
    """Whether masked places are reconstructed (MIR), not only masked."""
    image_mask_ratio: Share = 0.2
    """Share of an image's places that are masked, on average."""
    text_mask_ratio: Share = 0.15
    """Share of a description's words that are masked, on average; masked words have no loss."""
    max_new_tokens: Annotated[int, Field(ge=4, le=80)] = 80
    """Maximum tokens of a written description."""
