"""The settings of NAMC, a captioner of differences that is trained on a dataset from scratch (paper 001)."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pairwright.schemas.encoders import ClipConfig
from pairwright.schemas.section import Section, Share

SMALL, PAPER = "small", "paper"


class DualEncoderConfig(ClipConfig):
    """Say which CLIP the noise module begins as: one that sees 224 x 224 pixels in 14 x 14 patches."""

    model: str = "ViT-B-16-quickgelu"
    """open_clip's name of the model, or a JSON file that describes one. OpenAI's weights want the "-quickgelu" ones."""
    uncounted: ClassVar[frozenset[str]] = frozenset({"checkpoint"})


class CnnConfig(Section):
    """Say which CNN sees the grid of an image: its third stage, 14 x 14 places of 224 x 224 pixels."""

    model: Annotated[str, Field(pattern=r"^\w+(\.\w+)?$")] = "resnet101.tv_in1k"
    """timm's name of the model, with that of its weights on the Hub; with a checkpoint, the name alone will do."""
    checkpoint: str = ""
    """A local file of weights in their place, timm's or torchvision's."""
    revision: str = ""
    """The Hub's commit, or the hash of the local file; empty: what is on this machine. A run writes it down."""
    uncounted: ClassVar[frozenset[str]] = frozenset({"checkpoint"})


class VqganConfig(Section):
    """Say which VQGAN of taming-transformers gives the codes as which masked places are to be told."""

    checkpoint: str = ""
    """Its file (``vqgan_imagenet_f16_1024``: ``last.ckpt``), which is on no Hub and has to be fetched by hand. Nothing
    is run of what a training left in it beside the weights."""
    revision: str = ""
    """The hash of the file; empty: what is there. A run writes it down."""
    uncounted: ClassVar[frozenset[str]] = frozenset({"checkpoint"})


class VocabularyConfig(Section):
    """Say which words the decoder writes: a BERT's ``vocab.txt``."""

    model: Annotated[str, Field(min_length=1)] = "google-bert/bert-base-uncased"
    """Name on the Hub, whose file is read from the local cache."""
    checkpoint: str = ""
    """A local file in its place."""
    revision: str = ""
    """The Hub's commit, or the hash of the local file; empty: what is on this machine. A run writes it down."""


class NamcConfig(Section):
    """Say how NAMC is trained, and how it writes."""

    config: Literal["small", "paper"] = SMALL
    """How large it is, and what it sees of an image. small: everything is learnt from the dataset, on a CPU; it sees
    raw patches, and a masked patch is to be told by its colour. paper: 64.2 M weights beside CLIP's; what a CNN, a
    VQGAN and CLIP see of the images is computed once, into tables beside the dataset's."""
    width: Annotated[int, Field(ge=64, le=4096, multiple_of=64)] = 768
    """With paper: dimension of encoder and decoder, 64 to a head. small has 96. A run that starts from another one has
    that one's."""
    clip: DualEncoderConfig = DualEncoderConfig()
    """With paper: the noise module's dual encoder."""
    cnn: CnnConfig = CnnConfig()
    """With paper: what sees the images. A run that starts from another one has that one's."""
    vqgan: VqganConfig = VqganConfig()
    """With paper: what masked places are to be told as."""
    vocabulary: VocabularyConfig = VocabularyConfig()
    """With paper: the decoder's words. A run that starts from another one has that one's."""
    noise: bool = True
    """Whether what does not fit is masked (NIM) and masked places are reconstructed (MIR). Off for fine-tuning on
    clean texts, and where a run starts from another one."""
    relevance: Literal["own", "start"] = "own"
    """Who says what does not fit: CLIP as it learns, or CLIP as it was before the training. The latter is found once
    per row, with paper only, and is that one's default."""
    reconstruct: bool = True
    """Whether masked places are reconstructed; off: they are only masked."""
    image_share: Share = 0.2
    """Share of an image's places that are masked, on average."""
    text_share: Share = 0.15
    """Share of a description's words."""
    learn_masked: bool = False
    """Whether the decoder learns to write the mask word where a word was masked; else such words do not count."""
    length: Annotated[int, Field(ge=4, le=80)] = 80
    """Tokens of a written description at the most."""
    beams: Annotated[int, Field(ge=1, le=1000)] = 1
    """Descriptions that are kept while one is written; 1: greedy."""
