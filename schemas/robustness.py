"""Say how the images and texts of a source are made worse, to measure what that costs (paper 001, A.3)."""

from typing import Annotated, Literal

from pydantic import Field

from pairwright.schemas.section import Section, Share


class RobustnessConfig(Section):
    """Say how the images and texts of a source are made worse."""

    corruption: Literal["none", "gaussian-noise", "fog"] = "none"
    """Corruption of each image, as in ImageNet-C."""
    severity: Annotated[int, Field(ge=1, le=5)] = 5
    """Severity of the corruption; the paper: 5."""
    word_share: Share = 0.0
    """Share of the words that are replaced in each text that the source brings; the paper: 0.2, 0.4, 0.6 and 0.8."""

    @property
    def is_off(self) -> bool:
        """Say whether images and texts stay as they are."""
        return self.corruption == "none" and not self.word_share
