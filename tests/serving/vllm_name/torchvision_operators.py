"""Declare the torchvision operators whose absence keeps torchvision from being imported.

torchvision's compiled part fits only the PyTorch of the same build. Beside another one (a CPU
build, say) it is left out, and then torchvision stops at the first of two operators that it
describes. Declared here, they can be described; calling them still fails, which no image processor
does. Read by PyTorch itself, at the end of ``import torch``.
"""

from importlib.util import find_spec
from pathlib import Path

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_libraries: list[object] = []
"""Kept: the operators of a library go with it."""


def declare_missing() -> None:
    """Declare the operators, unless torchvision's own compiled part brings them (or there is no
    torchvision)."""
    import torch

    spec = find_spec("torchvision")
    if spec is None or spec.origin is None or _loads(Path(spec.origin).parent):
        return
    library = torch.library.Library("torchvision", "DEF")
    for schema in SCHEMAS:
        library.define(schema)
    _libraries.append(library)


def _loads(folder: Path) -> bool:
    import torch

    for compiled in folder.glob("_C*.so"):
        try:
            torch.ops.load_library(str(compiled))
        except OSError:
            return False
    return hasattr(torch.ops.torchvision, "nms")
