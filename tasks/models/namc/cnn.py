"""Make the CNN that sees NAMC's grids: a model of timm up to its third stage.

Reads weights through ``files`` and ``read_checkpoint``: timm's, or torchvision's, whose ResNets have the same names.
Needs PyTorch and timm.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairwright.schemas.errors import ModelError
from pairwright.schemas.namc import CnnConfig
from pairwright.tasks.models.checkpoints import read_checkpoint
from pairwright.tasks.models.namc.files import CNN, check_file, find_cnn
from pairwright.tasks.models.tensor_shapes import name_some
from pairwright.tasks.models.weights import loading

if TYPE_CHECKING:
    from torch import Tensor

STAGE, PIXELS = 3, 16
"""Its third stage, where a place is 16 x 16 pixels."""
Three = tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cnn:
    """Be a CNN that gives a list of one tensor, ``(n, width, h / 16, w / 16)``, and how its pixels are scaled."""

    network: Any
    mean: Three
    std: Three
    width: int


def make_cnn(config: CnnConfig) -> Cnn:
    """Return a CNN with its weights.

    Raises:
        ModelError: timm has no such model, or the weights are missing, damaged or another model's.
    """
    import timm

    path, name = find_cnn(config), config.model.partition(".")[0]
    check_file(path, config, CNN)
    with loading(CNN, path):
        network: Any = timm.create_model(name, pretrained=False, features_only=True, out_indices=(STAGE,))
        cfg = dict(network.pretrained_cfg)
    (pixels,), (width,) = network.feature_info.reduction(), network.feature_info.channels()
    if pixels != PIXELS:
        raise ModelError(f"{CNN}.model: {name}: its third stage has places of {pixels} pixels, not of {PIXELS}")
    _fill(network, read_checkpoint(path, field=CNN, under="state_dict"), path)
    network.eval().requires_grad_(requires_grad=False)
    return Cnn(network=network, mean=_three(cfg["mean"]), std=_three(cfg["std"]), width=int(width))


def _fill(network: Any, weights: "dict[str, Tensor]", path: Path) -> None:
    """Put weights into a network; those of later stages, and of the classifier, are passed over.

    Raises:
        ModelError: some are missing, or of other shapes.
    """
    own = network.state_dict()
    needed = [name for name in own if not name.endswith("num_batches_tracked")]
    if wrong := [name for name in needed if name not in weights or weights[name].shape != own[name].shape]:
        raise ModelError(f"{CNN}: {path}: does not fit the model: {name_some(sorted(wrong))}")
    network.load_state_dict({name: weights[name] for name in needed}, strict=False)


def _three(values: Any) -> Three:
    first, second, third = map(float, values)
    return first, second, third
