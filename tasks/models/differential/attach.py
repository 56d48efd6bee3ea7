"""Have a vision-language model perceive differences, without a model of our own: Qwen2-VL, Qwen2.5-VL, LLaVA-OneVision.

The module is put between the vision tower and what brings its features to the language model, by hooks of PyTorch: they
look at the tower's blocks and change what leaves it. Images go in twos, in the order in which the prompt names them. A
pair's images must have the same grid, so both are brought to one size before; otherwise places could not be compared.

Weights are kept beside the base's: ``differential.json`` and ``differential.safetensors``. The model is served by
transformers; vLLM has models of its own, and cannot know the module.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from torch import cat, device, nn, stack

from pairwright.schemas.differential import MOST_DEPTH, NAME, SIZES, WEIGHTS
from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.checkpoints import read_checkpoint
from pairwright.tasks.models.differential.perception import DifferentialPerception, DifferentialSizes, spread_layers
from pairwright.tasks.models.tensor_shapes import compare_shapes

if TYPE_CHECKING:
    from torch import Tensor

FAMILIES = ("qwen2_vl", "qwen2_5_vl", "llava_onevision")
FIELD = "--differential"


@dataclass(frozen=True, slots=True)
class Tower:
    """Be the parts of a vision tower that hooks go to."""

    whole: nn.Module
    blocks: Sequence[nn.Module]
    after: nn.Module
    """What its features go into."""
    width: int
    heads: int


def attach(model: Any, sizes: DifferentialSizes | None = None, **settings: Any) -> DifferentialPerception:
    """Give a model a module that perceives differences; it is untrained, and so changes nothing yet.

    Args:
        model: of transformers, before it is wrapped by PEFT or distributed.
        sizes: of the module; ``None``: those that fit the model.
        settings: fields of ``sizes`` that are otherwise than usual.

    Raises:
        ModelError: the model's family is not known here, it has a module already, or the module does not fit it.
    """
    tower = find_tower(model)
    usual = DifferentialSizes(width=tower.width, heads=tower.heads, layers=spread_layers(len(tower.blocks)))
    sizes = replace(sizes or usual, **settings)
    if hasattr(model, NAME):
        raise ModelError("this model perceives differences already")
    _check(sizes, tower)
    weight = next(tower.whole.parameters())
    module = DifferentialPerception(sizes).to(device=weight.device, dtype=weight.dtype)
    setattr(model, NAME, module)
    _Hooks(module, tower).register()
    return module


def _check(sizes: DifferentialSizes, tower: Tower) -> None:
    last = len(tower.blocks)
    if sizes.width != tower.width:
        raise ModelError(f"{FIELD}: the module is for features of width {sizes.width}, the model's have {tower.width}")
    if sizes.heads < 1 or sizes.width % sizes.heads:
        raise ModelError(f"{FIELD}: {sizes.heads} heads do not share a width of {sizes.width}")
    if not 1 <= sizes.depth <= MOST_DEPTH:
        raise ModelError(f"{FIELD}: a depth of {sizes.depth} is not between 1 and {MOST_DEPTH}")
    if not sizes.layers or list(sizes.layers) != sorted(set(sizes.layers)) or sizes.layers[0] < 1:
        raise ModelError(f"{FIELD}: layers {sizes.layers} are not rising numbers from 1")
    if sizes.layers[-1] != last:
        raise ModelError(f"{FIELD}: the last of the layers is {sizes.layers[-1]}; the model goes on with layer {last}")


def find_tower(model: Any, *, field: str = FIELD) -> Tower:
    """Return the vision tower of a model; ``field`` is what asks for it, for messages.

    Raises:
        ModelError: its family is not known here.
    """
    family = getattr(model.config, "model_type", "")
    if family not in FAMILIES:
        raise ModelError(f"{field}: knows the towers of {', '.join(FAMILIES)}; this model is a {family or 'stranger'}")
    vision = model.config.vision_config
    if family == "llava_onevision":
        if model.config.vision_feature_layer != -1:
            raise ModelError(
                f"{field}: this model goes on with layer {model.config.vision_feature_layer}, not the last"
            )
        whole = model.model.vision_tower
        inner = getattr(whole, "vision_model", whole)
        return Tower(
            whole, list(inner.encoder.layers), model.model.multi_modal_projector,
            vision.hidden_size, vision.num_attention_heads,
        )  # fmt: skip
    whole = model.model.visual
    width = vision.embed_dim if family == "qwen2_vl" else vision.hidden_size
    return Tower(whole, list(whole.blocks), whole.merger, width, vision.num_heads)


class _Hooks:
    """Look at a tower's blocks as it runs, and change what leaves it."""

    def __init__(self, module: DifferentialPerception, tower: Tower) -> None:
        self._module, self._tower = module, tower
        self._seen: dict[int, Tensor] = {}
        self._grids: list[tuple[int, ...]] = []
        self._looking = False
        """Between the tower's beginning and what it goes into: blocks may run again in the backward pass."""

    def register(self) -> None:
        self._tower.whole.register_forward_pre_hook(self._begin, with_kwargs=True)
        for number in self._module.sizes.layers:
            self._tower.blocks[number - 1].register_forward_hook(self._look(number))
        self._tower.after.register_forward_pre_hook(self._change)

    def _begin(self, _tower: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._looking = True
        self._seen.clear()  # of a pass that ended in an error
        grids = kwargs.get("grid_thw", args[1] if len(args) > 1 else None)
        self._grids = [] if grids is None else [tuple(grid) for grid in grids.tolist()]

    def _look(self, number: int) -> Any:
        def look(_block: nn.Module, _args: Any, out: Any) -> None:
            if self._looking:
                self._seen[number] = out[0] if isinstance(out, tuple) else out

        return look

    def _change(self, _after: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        features, scales = args[0], [self._seen[number] for number in self._module.sizes.layers]
        self._seen.clear()
        self._looking = False
        packed = features.dim() == 2  # (all tokens, width), else (images, tokens, width)
        grids = self._grids if packed else [(features.shape[1],)] * len(features)
        _check_pairs(grids)
        if len(set(grids)) > 1:
            return (cat(self._change_each(scales)), *args[1:])
        images = [one.reshape(len(grids), -1, one.shape[-1]) for one in scales]
        pairs = self._module([(one[::2], one[1::2]) for one in images])
        return (stack(pairs, 1).reshape(features.shape), *args[1:])

    def _change_each(self, scales: "Sequence[Tensor]") -> "list[Tensor]":
        """Return the features of images that lie one after the other, of pairs that have different grids."""
        images = [one.split([prod(grid) for grid in self._grids]) for one in scales]
        changed: list[Tensor] = []
        for place in range(0, len(self._grids), 2):
            pair = self._module([(one[place][None], one[place + 1][None]) for one in images])
            changed += [one[0] for one in pair]
        return changed


def _check_pairs(grids: Sequence[tuple[int, ...]]) -> None:
    """Refuse images that are no pairs.

    Raises:
        ModelError: which they are.
    """
    if len(grids) % 2:
        raise ModelError(f"{FIELD}: images go in twos, and these are {len(grids)}")
    for place in range(0, len(grids), 2):
        first, second = (" x ".join(map(str, grid[1:])) for grid in grids[place : place + 2])
        if first != second:
            raise ModelError(
                f"{FIELD}: images {place + 1} and {place + 2} have {first} and {second} places; bring both to one size"
            )


def save_differential(model: Any, folder: Path) -> None:
    """Write the module's weights and sizes beside those of the model.

    Raises:
        ModelError: the model has none.
    """
    from safetensors.torch import save_file

    module = getattr(model, NAME, None)
    if not isinstance(module, DifferentialPerception):
        raise ModelError("this model has no module that perceives differences")
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()}
    save_file(weights, folder / WEIGHTS)
    (folder / SIZES).write_text(json.dumps(asdict(module.sizes), indent=1), encoding="utf-8")


def load_differential(model: Any, folder: Path) -> bool:
    """Attach the module that lies beside a model's weights; return whether there is one.

    Raises:
        ModelError: it cannot be read, or does not fit the model.
    """
    if not (folder / SIZES).exists():
        return False
    try:
        sizes = TypeAdapter(DifferentialSizes).validate_json((folder / SIZES).read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder / SIZES}: cannot be read as a module's sizes: {error}") from error
    _check(sizes, find_tower(model))
    weights = read_checkpoint(folder / WEIGHTS, field=FIELD)
    with device("meta"):  # no memory is taken for sizes that are not those of the weights
        wanted = DifferentialPerception(sizes).state_dict()
    try:
        compare_shapes(_shapes(weights), _shapes(wanted))
    except ModelError as error:
        raise ModelError(f"{folder / WEIGHTS}: does not fit {SIZES}: {error}") from error
    attach(model, sizes).load_state_dict(weights)
    return True


def _shapes(weights: "Mapping[str, Tensor]") -> dict[str, tuple[int, ...]]:
    return {name: tuple(weight.shape) for name, weight in weights.items()}
