"""The settings of the tables that ADPO's retriever makes and needs."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pairwright.schemas.encoders import ClipConfig
from pairwright.schemas.section import Section, Share

WORDS = "words"


class TextVectorsConfig(Section):
    """Say what makes vectors of the chosen texts."""

    encoder: Literal["words", "clip"] = WORDS
    """The words and word pairs of a text, hashed; or CLIP's text tower, where the images have CLIP's vectors."""
    dimension: Annotated[int, Field(ge=64, le=65_536)] = 512
    """Length of the vectors of hashed words."""
    clip: ClipConfig = ClipConfig()
    """The model that embeds the images, too."""


class MinedConfig(Section):
    """Say whose negatives are written into a table of preferences."""

    retriever: Annotated[str, Field(min_length=1)]
    """The file that an ADPO run wrote: its ``retriever.safetensors``."""
    sha256: str = ""
    """Its hash; empty: that of the file there. The table's fingerprint holds the hash, not the place."""
    pool: str = "train"
    """The split whose chosen texts are negatives of other pairs."""
    candidates: Annotated[int, Field(ge=1, le=1024)] = 32
    """How many of a pair's hardest texts are looked at until one is found that is not known to be true of it."""
    min_q: Share = 0.0
    """Texts that the retriever gives less than this are no negatives, and the row is dropped where none is left."""
    uncounted: ClassVar[frozenset[str]] = frozenset({"retriever"})
