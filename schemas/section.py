"""What the sections of a profile are made of: their common form, and the types of their fields."""

from typing import Annotated, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Names = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else () if value is None else value),
]
"""Several names, one or none: `train`, `[train, val]`."""
OFF = BeforeValidator(lambda value: {False: "off", True: "on"}[value] if isinstance(value, bool) else value)
"""For fields that may be `off` or `on`, which are YAML's words for false and true."""


class Section(BaseModel):
    """Be one section of a profile: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)
    uncounted: ClassVar[frozenset[str]] = frozenset()
    """Fields that no fingerprint counts: they change no row, or the stage's ``models`` tell what counts of them."""
