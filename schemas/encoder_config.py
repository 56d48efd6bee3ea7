"""Settings of the encoders that compare images and texts."""

from typing import Annotated

from pydantic import Field

from pairwright.schemas.section import Section


class ClipConfig(Section):
    """CLIP model of open_clip; the default is the paper's."""

    model: str = "ViT-L-14-quickgelu"
    """open_clip's name of the model, or a JSON file that describes one (OpenAI's weights need a
    "-quickgelu" one)."""
    pretrained: str = "openai"
    """open_clip's name of the weights; they are read from the Hub's local cache."""
    checkpoint: str = ""
    """Local weights in their place: a file, or a folder with open_clip_config.json (which names the
    model, too)."""
    revision: str = ""
    """The Hub's commit, or the hash of the local files; empty: what is on this machine."""


class Dinov2Config(Section):
    """DINOv2 model; the default is the paper's."""

    model: Annotated[str, Field(min_length=1)] = "facebook/dinov2-large"
    """Name on the Hub (read from its local cache), or a local folder as save_pretrained writes
    it."""
    revision: str = ""
    """The Hub's commit, or the hash of the local files; empty: what is on this machine."""


class EncoderConfig(Section):
    """Image encoder with a pooled output, by transformers' AutoModel: DINOv3, for example."""

    model: Annotated[str, Field(min_length=1)] = "facebook/dinov3-vitl16-pretrain-lvd1689m"
    """Name on the Hub (read from its local cache), or a local folder as save_pretrained writes
    it."""
    revision: str = ""
    """The Hub's commit, or the hash of the local files; empty: what is on this machine."""
