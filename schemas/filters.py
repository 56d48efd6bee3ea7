"""Filters that leave out images before pairs are mined; all are off by default."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from pairwright.schemas.section import FOUND, UNSET, Count, Filled, Section, Share


@dataclass(frozen=True, slots=True)
class MeasureBound:
    """Bound of one measure: the column, the setting, and the reason of an image beyond it."""

    column: str
    field: str
    reason: str
    is_least: bool = False
    """Whether it is a minimum; otherwise a maximum."""
    head: str = ""
    """Field of ``HeadsConfig`` that it needs."""


CHECKS = (
    MeasureBound("sharpness", "min_sharpness", "blurred", is_least=True),
    MeasureBound("dark", "max_dark", "too dark"),
    MeasureBound("bright", "max_bright", "too bright"),
    MeasureBound("aspect", "max_aspect", "too long or too high"),
    MeasureBound(
        "aesthetic", "min_aesthetic", "low aesthetic score", is_least=True, head="aesthetic"
    ),
    MeasureBound("unsafe", "max_unsafe", "unsafe content", head="unsafe"),
)


class HeadsConfig(Section):
    """Heads: small networks that score CLIP vectors, trained on the CLIP of `embedding.clip`.

    A safetensors file of linear layers in the order of the numbers in their names (`weight`,
    `bias`; or `0.weight`, `2.weight`, ...), the last with one output; with ReLU between them where
    its metadata says `activation: relu`.
    """

    uncounted: ClassVar[frozenset[str]] = frozenset({"aesthetic", "unsafe"})
    aesthetic: str = ""
    """File of an aesthetic head, such as LAION's linear one on ViT-L/14 (1 to 10), as safetensors;
    empty: none."""
    unsafe: str = ""
    """File of an unsafe-content head on CLIP's vectors, as safetensors: the sigmoid of its output
    is the probability; empty: none."""
    aesthetic_revision: Annotated[str, UNSET, FOUND] = ""
    unsafe_revision: Annotated[str, UNSET, FOUND] = ""
    enabled: Annotated[bool, UNSET, Filled("filters.is_on")] = False


class FiltersConfig(Section):
    """Filters of images before mining (ours), by the measures in the table `qualities`."""

    min_sharpness: Annotated[float, Field(ge=0)] = 0.0
    """Minimum variance of the Laplacian (grey values 0 to 255, at most 512 pixels a side); 50
    leaves out clearly blurred images. 0: no limit."""
    max_dark: Share = 1.0
    """Maximum share of an image's pixels darker than 16 of 255; 1: no limit."""
    max_bright: Share = 1.0
    """Maximum share of an image's pixels brighter than 239 of 255; 1: no limit."""
    max_aspect: Annotated[float, Field(ge=0)] = 0.0
    """Maximum ratio of the longer side to the shorter; 0: no limit."""
    min_aesthetic: float = 0.0
    """Minimum score by `filters.heads.aesthetic`; 0: no limit."""
    max_unsafe: Share = 1.0
    """Maximum probability by `filters.heads.unsafe`; 1: no limit."""
    max_images_per_group: Count = 0
    """Maximum images of each group of the source (a video, else a folder), drawn by their keys; 0:
    no limit."""
    max_similarity: Share = 1.0
    """Maximum similarity, by every embedder, to another image that stays; of two, the one with the
    lower key stays. Each is compared with all: seconds for 10,000, minutes for 100,000. 1: no
    limit."""
    heads: HeadsConfig = HeadsConfig()

    @property
    def checks(self) -> Iterator[tuple[MeasureBound, float]]:
        """Yield the checks that are on, with their bounds."""
        for check in CHECKS:
            bound = getattr(self, check.field)
            if bound != type(self).model_fields[check.field].default:
                yield check, bound

    @property
    def is_on(self) -> bool:
        """Return whether images are measured: one filter is on, or a head is named."""
        named = self.heads.aesthetic or self.heads.unsafe
        return bool(
            named or self.max_images_per_group or self.max_similarity < 1 or any(self.checks)
        )

    @property
    def measuring(self) -> HeadsConfig:
        """Return the settings for measuring images."""
        return self.heads.fill(enabled=self.is_on)

    @property
    def filtering(self) -> Self:
        """Return the settings for filtering measured images."""
        return self.model_copy(update={"heads": self.measuring})

    @model_validator(mode="after")
    def _heads_are_named(self) -> "FiltersConfig":
        for check, _ in self.checks:
            if check.head and not getattr(self.heads, check.head):
                raise ValueError(
                    f"{check.field} needs the scores of a head: set heads.{check.head} to its file"
                )
        return self
