"""Removers by name: LaMa, a server that edits, plugins'. They fill the hole of a removed element.

Rendered scenes are rendered again without the element (``rendered``), by a function of their own.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import RemovalsConfig
from pairwright.tasks.models.lama import LamaInpainter, pin_lama
from pairwright.tasks.models.model_registry import ModelRegistry, OwnModel
from pairwright.tasks.perception.edited_removals import EditingRemover
from pairwright.tasks.perception.image_faults import ImageFault
from pairwright.tasks.serving.edit_images import find_editor

RENDERED = "rendered"
Filling = NDArray[np.uint8] | ImageFault


@runtime_checkable
class Remover(Protocol):
    """Model that fills the hole of a removed element."""

    @property
    def name(self) -> str:
        """Name in profiles."""
        ...

    @property
    def version(self) -> str:
        """Identity, which changes with its fillings."""
        ...

    def prepare(
        self,
        image: NDArray[np.uint8],
        hole: NDArray[np.bool_],
        window: tuple[int, int, int, int],
        tag: str,
    ) -> Any:
        """Return the model's input of an ``(h, w, 3)`` image with a hole in a window.

        ``window``: x0, y0, x1, y1; ``tag`` names what is removed.
        """
        ...

    def inpaint(self, prepared: Sequence[Any]) -> Iterable[Filling]:
        """Yield each window's ``(h, w, 3)`` pixels without the element, or why there are none."""
        ...


def _make_lama(config: RemovalsConfig) -> Remover:
    return LamaInpainter(config=config)


def _pin_lama(config: RemovalsConfig) -> RemovalsConfig:
    lama = pin_lama(config.lama, download=config.download)
    return config.model_copy(update={"lama": lama})


def _make_editor(config: RemovalsConfig) -> Remover:
    return EditingRemover(config=config)


def _pin_editor(config: RemovalsConfig) -> RemovalsConfig:
    return config.model_copy(update={"editor": find_editor(config.editor)})


REMOVERS: ModelRegistry[RemovalsConfig, Remover] = ModelRegistry(
    "removers",
    Remover,
    {
        "lama": OwnModel(_make_lama, _pin_lama),
        "edited": OwnModel(_make_editor, _pin_editor, on_device=False),
    },
    reserved=(RENDERED,),
)
"""All removers that fill holes, by name."""
