"""Say how the images and texts of a source are made worse, to measure what that costs (paper 001, A.3)."""

from typing import Annotated, Literal

from pydantic import Field

from pairwright.schemas.section import OFF, Section, Share


class RobustnessConfig(Section):
    """Say how the images and texts of a source are made worse."""

    images: Annotated[Literal["off", "gaussian-noise", "fog"], OFF] = "off"
    """What is laid over each image, as ImageNet-C does."""
    severity: Annotated[int, Field(ge=1, le=5)] = 5
    """How much of it, 1 to 5; the paper: 5."""
    words: Share = 0.0
    """Share of the words that are replaced in each text that the source brings; the paper: 0.2, 0.4, 0.6 and 0.8."""

    @property
    def is_off(self) -> bool:
        """Say whether images and texts stay as they are."""
        return self.images == "off" and not self.words
