"""Compare the shapes of a checkpoint's tensors with those of a model. Sizes only: nothing is loaded."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pairwright.schemas.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor

Shapes = Mapping[str, tuple[int, ...]]
NAMED = 4
"""Keys that a message names at the most."""


def count_parts(shapes: Shapes, prefix: str) -> int:
    """Return how many numbered parts there are.

    Raises:
        ValueError: their numbers do not go from 0 on.
    """
    numbers = {name[len(prefix) :].partition(".")[0] for name in shapes if name.startswith(prefix)}
    if not numbers or numbers != {str(number) for number in range(len(numbers))}:
        raise ValueError(f"its parts {prefix}N are not numbered from 0 on")
    return len(numbers)


def compare_shapes(found: Shapes, wanted: Shapes) -> None:
    """Refuse tensors that are missing, that nothing takes (a model built upon this one), or of another shape.

    Raises:
        ModelError: names them.
    """
    if missing := [name for name in wanted if name not in found]:
        raise ModelError(f"it has no {name_some(missing)}")
    if strange := [name for name in found if name not in wanted]:
        raise ModelError(f"it is another model: there is no place for {name_some(strange)}")
    for name, shape in found.items():
        if shape != wanted[name]:
            raise ModelError(f"{name} is {shape}, and should be {wanted[name]}")


def name_some(names: Sequence[str]) -> str:
    """Return the first few names, for a message."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


def shapes_of(tensors: "Mapping[str, Tensor]") -> dict[str, tuple[int, ...]]:
    """Return the tensors' shapes."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}
