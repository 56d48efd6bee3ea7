"""The settings of NAMC, a captioner of differences that is trained on a dataset from scratch (paper 001)."""

from typing import Annotated, Literal

from pydantic import Field

from schemas.section import Positive, Section, Share


class NamcConfig(Section):
    """Say how NAMC is trained, and how it writes."""

    config: Literal["small"] = "small"
    """How large it is, and what it sees of an image. small: everything is learnt from the dataset, on a CPU; it sees
    raw patches, and a masked patch is to be told by its colour."""
    noise: bool = True
    """Whether what does not fit is masked (NIM) and masked places are reconstructed (MIR). Off for fine-tuning on
    clean texts, and where a run starts from another one."""
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
    beams: Positive = 1
    """Descriptions that are kept while one is written; 1: greedy."""
