"""How large a NAMC is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NamcSizes:
    """Size the masked image encoder and the decoder; the values are the paper's (64.2 M weights, CLIP aside)."""

    width: int = 768
    heads: int = 12
    layers: int = 2
    """Of the encoder, and of the decoder."""
    places: int = 196
    """Of an image's grid: 14 x 14, the same for CLIP's patches, the CNN's features and VQGAN's codes."""
    features: int = 1024
    """Channels of the CNN's features: ResNet-101, third stage."""
    codes: int = 1024
    """In VQGAN's codebook."""
    vocabulary: int = 30_522
    """Of the decoder: BERT's."""
    length: int = 80
    """Tokens that a description may have; the paper's 23 are those of its benchmarks, too few for its own template."""
    dropout: float = 0.1
