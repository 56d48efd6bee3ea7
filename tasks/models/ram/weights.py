"""Read a checkpoint of RAM or RAM++: its image encoder (``ram.swin``), and its decoder's tensors (``ram.decoder``).

Reads the published ``.pth``, or safetensors with the same keys. Needs PyTorch and timm. The file's numbers are used
where they lie: processes on one machine share them.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.checkpoints import read_checkpoint
from pairwright.tasks.models.ram.decoder import HEAD, HEADS, LAYER
from pairwright.tasks.models.ram.swin import COMPUTED, SWIN, fill_swin
from pairwright.tasks.models.tensor_shapes import Shapes, compare_shapes, count_parts, name_some

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)
OLD_HEAD = "vision_multi."
"""What the head is called in some files."""
UNUSED = re.compile(rf"{re.escape(HEAD)}embeddings\.|{re.escape(LAYER)}\d+\.attention\.")
"""Parts of BERT that the authors delete from the head."""
USED = (SWIN, HEAD, "label_embed", "reweight_scale", "image_proj.", "wordvec_proj.", "fc.")
"""Beside these a checkpoint holds what writes captions (``tag_encoder``, ``text_decoder``); nothing here reads that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RamWeights:
    """Be a model's weights, in float32 on the CPU."""

    swin: Any
    """timm's ``SwinTransformer``, from ``(n, 3, side, side)`` to ``(n, rows, columns, width)``."""
    side: int
    """Of the images that it sees, in pixels."""
    decoder: "dict[str, Tensor]"
    """Everything else by its published key."""


def load_ram(path: Path, *, field: str, plus: bool) -> RamWeights:
    """Return the weights of a checkpoint.

    Args:
        path: the checkpoint.
        field: the field of the profile that names it, for messages.
        plus: whether it is one of RAM++.

    Raises:
        ModelError: it cannot be read, or is no checkpoint of this model; the message says why.
    """
    tensors = read_checkpoint(path, field=field, under="model")
    try:
        return _fill(_renamed(tensors), plus=plus)
    except ModelError as error:
        raise ModelError(f"{field}: {path}: {error}") from error


def _renamed(tensors: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    """Return what the model uses, the head under its newer name."""
    names = {re.sub(f"^{re.escape(OLD_HEAD)}", HEAD, name): name for name in tensors}
    left = tuple(name for name in names if not name.startswith(USED) or UNUSED.match(name))
    if left:
        log.debug("not used of the checkpoint: %s", name_some(left))
    return {new: tensors[name] for new, name in names.items() if new not in set(left)}


def _fill(tensors: "Mapping[str, Tensor]", *, plus: bool) -> RamWeights:
    _check_kind(tensors, plus=plus)
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() and not COMPUTED.search(name):
            raise ModelError(f"{name} holds {tensor.dtype}, not floating-point numbers")
    swin, shape = fill_swin({name: tensor for name, tensor in tensors.items() if name.startswith(SWIN)})
    decoder = {name: tensor.float() for name, tensor in tensors.items() if not name.startswith(SWIN)}
    found = {name: tuple(tensor.shape) for name, tensor in decoder.items()}
    compare_shapes(found, _decoder_shapes(found, shape.width, plus=plus))
    return RamWeights(swin=swin, side=shape.side, decoder=decoder)


def _check_kind(tensors: "Mapping[str, Tensor]", *, plus: bool) -> None:
    """Refuse a checkpoint of the other model, whose other keys are the same."""
    if "label_embed" in tensors and plus != ("reweight_scale" in tensors):
        found, wanted = ("RAM", "ram") if plus else ("RAM++", "ram-plus")
        raise ModelError(f"it is a checkpoint of {found}: set tagging.taggers to {wanted}, or name another file")


def _decoder_shapes(found: Shapes, image_width: int, *, plus: bool) -> Shapes:
    """Return the shapes that the decoder's tensors must have, given its widths and its depth."""
    widths = ("label_embed", "wordvec_proj.weight", f"{LAYER}0.intermediate.dense.weight")
    if missing := [name for name in widths if len(found.get(name, ())) != 2]:
        raise ModelError(f"it has no {name_some(missing)}")
    (rows, width), (hidden, _), (inner, _) = (found[name] for name in widths)
    if hidden % HEADS:
        raise ModelError(f"wordvec_proj.weight gives vectors of {hidden} numbers, which {HEADS} heads cannot share")
    try:
        layers = count_parts(found, LAYER)
    except ValueError as error:
        raise ModelError(str(error)) from error
    parts = {"image_proj": (width, image_width), "wordvec_proj": (hidden, width), "fc": (1, hidden)}
    norms: list[str] = []
    for layer in range(layers):
        across, after = f"{LAYER}{layer}.crossattention", f"{LAYER}{layer}"
        parts |= {f"{across}.self.query": (hidden, hidden), f"{across}.output.dense": (hidden, hidden)}
        parts |= {f"{across}.self.key": (hidden, width), f"{across}.self.value": (hidden, width)}
        parts |= {f"{after}.intermediate.dense": (inner, hidden), f"{after}.output.dense": (hidden, inner)}
        norms += [f"{across}.output.LayerNorm", f"{after}.output.LayerNorm"]
    shapes: dict[str, tuple[int, ...]] = {"label_embed": (rows, width)} | ({"reweight_scale": ()} if plus else {})
    shapes |= {f"{name}.weight": size for name, size in parts.items()}
    shapes |= {f"{name}.bias": size[:1] for name, size in parts.items()}
    return shapes | {f"{norm}.{kind}": (hidden,) for norm in norms for kind in ("weight", "bias")}
