"""Differential perception: a vision-language model that perceives differences of two images (paper 002, M3Diff).

MDP, Eqs. 1 to 8: concatenation is over channels in Eqs. 1, 3 and 7, over tokens in 5 and 6. Ours:
Eq. 6 has a residual, without which the features are lost at first, and the output is added through
a map initialised to zero, so that an untrained module changes nothing. Settings cover what the
paper leaves open.

The module is hooked behind the vision tower of Qwen2-VL, Qwen2.5-VL or LLaVA-OneVision. Images come
in pairs, in the order of the prompt; both of a pair must have the same grid. Its weights are kept
beside the base's. The model is served by transformers, since vLLM does not support the module.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import torch
from pydantic import Field
from torch import nn

from pairwright.schemas.errors import ModelError
from pairwright.schemas.section import Positive
from pairwright.schemas.training import NAME, SIZES, WEIGHTS, DifferentialConfig
from pairwright.tasks.models.checkpoints import compare_shapes, read_checkpoint, shapes_of
from pairwright.tasks.models.cross_attention import Attention, Layers

if TYPE_CHECKING:
    from torch import Tensor

FAMILIES = ("qwen2_vl", "qwen2_5_vl", "llava_onevision")
FIELD = "--differential"


class DifferentialSizes(DifferentialConfig):
    """Sizes of a differential perception module, beside its settings."""

    width: Positive
    """Channels of the tower's features."""
    heads: Positive
    layers: Annotated[tuple[Positive, ...], Field(min_length=1)]
    """Compared blocks of the tower, from 1, ascending; the last feeds the model."""


class Perceived(NamedTuple):
    """Output of one scale, ``(B, tokens, width)`` each: both images, and Eq. 3's difference."""

    first: "Tensor"
    second: "Tensor"
    difference: "Tensor"


class Scale(nn.Module):
    """Comparison of features of one depth (Eqs. 1 to 6)."""

    def __init__(self, sizes: DifferentialSizes) -> None:
        super().__init__()
        width = sizes.width
        self.weigh = nn.Linear(2 * width, width, bias=False)
        self.join = nn.Linear(3 * width, width, bias=False)
        self.layers = Layers(sizes.depth, width, sizes.heads, dropout=0.0)
        self.feature_norm, self.difference_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.refine = Attention(width, sizes.heads)

    def forward(self, first: "Tensor", second: "Tensor") -> Perceived:
        """Return the perception of two images' features ``(B, tokens, width)``, aligned by position."""
        one, other = self.feature_norm(first), self.feature_norm(second)
        difference = self.join(torch.cat(self.blocks(one, other), dim=-1))
        found = difference
        for layer in self.layers:
            found = layer.look(found)
            found = layer.finish(found, layer.other.see(torch.cat([one, other, found], dim=1)))
        found = self.difference_norm(found)
        return Perceived(
            first + self._refine(one, found), second + self._refine(other, found), difference
        )

    def _refine(self, features: "Tensor", difference: "Tensor") -> "Tensor":
        return self.refine(features, self.refine.see(torch.cat([features, difference], dim=1)))

    def blocks(self, first: "Tensor", second: "Tensor") -> "tuple[Tensor, Tensor, Tensor]":
        """Return the inputs of Eq. 3: both images, weighted by each other (Eqs. 1 and 2), and their difference."""
        one, other = (
            pair[0] * self.weigh(torch.cat(pair, -1)).sigmoid()
            for pair in ((first, second), (second, first))
        )
        return one, other, one - other


class DifferentialPerception(nn.Module):
    """Module that adds differences to the features of two images.

    For SigLIP's 1,152 channels it has 61.1 M weights: 54.5 M compare, 5.3 M score the scales, 1.3 M
    add the output.
    """

    def __init__(self, sizes: DifferentialSizes) -> None:
        super().__init__()
        self.sizes = sizes
        count = 1 if sizes.shared_weights else len(sizes.layers)
        self.scales = nn.ModuleList(Scale(sizes) for _ in range(count))
        width = sizes.width
        self.score = nn.Sequential(
            nn.Linear(3 * width, width),
            nn.GELU(),
            nn.Linear(width, width if sizes.weight_per == "channel" else 1),
        )
        self.out = nn.Linear(width, width, bias=False)
        nn.init.zeros_(self.out.weight)

    def forward(self, scales: "Sequence[tuple[Tensor, Tensor]]") -> "tuple[Tensor, Tensor]":
        """Return the features of both images, ``(B, tokens, width)``, from those of each layer."""
        own = list(self.scales) * (len(scales) if self.sizes.shared_weights else 1)
        found = [scale(*pair) for scale, pair in zip(own, scales, strict=True)]
        firsts, seconds, differences = (torch.stack(each) for each in zip(*found, strict=True))
        pooled = torch.cat(
            [each.mean(2) for each in (firsts, seconds, differences)], dim=-1
        )  # (layers, B, 3 width)
        scores = self.score(pooled)[:, :, None]
        weights = scores.softmax(0) if self.sizes.softmax else scores.sigmoid()
        first, second = scales[-1]
        return first + self.out((weights * firsts).sum(0)), second + self.out(
            (weights * seconds).sum(0)
        )


def spread_layers(depth: int, count: int = 4) -> tuple[int, ...]:
    """Return the last block of a tower and earlier ones, a ninth of its depth apart: 17, 20, 23, 26 of 26."""
    step = max(1, round(depth / 9))
    return tuple(sorted({max(1, depth - step * back) for back in range(count)}))


@dataclass(frozen=True, slots=True)
class Tower:
    """Hooked parts of a vision tower."""

    whole: nn.Module
    blocks: Sequence[nn.Module]
    after: nn.Module  # module that receives its features
    width: int
    heads: int


def attach(
    model: Any, sizes: DifferentialSizes | None = None, **settings: Any
) -> DifferentialPerception:
    """Attach an untrained module, which changes nothing yet, to a transformers model before PEFT or DDP wrap it.

    ``settings`` are fields of ``DifferentialSizes`` that replace the defaults for the model.
    """
    tower = find_tower(model)
    usual = DifferentialSizes(
        width=tower.width, heads=tower.heads, layers=spread_layers(len(tower.blocks))
    )
    sizes = (sizes or usual).model_copy(update=settings)
    _check(sizes, tower)
    weight = next(tower.whole.parameters())
    module = DifferentialPerception(sizes).to(device=weight.device, dtype=weight.dtype)
    setattr(model, NAME, module)
    _Hooks(module, tower)
    return module


def _check(sizes: DifferentialSizes, tower: Tower) -> None:
    if sizes.width != tower.width or sizes.width % sizes.heads:
        raise ModelError(
            f"{FIELD}: width {sizes.width} and {sizes.heads} heads do not fit the model's {tower.width}"
        )
    if list(sizes.layers) != sorted(set(sizes.layers)) or sizes.layers[-1] != len(tower.blocks):
        raise ModelError(
            f"{FIELD}: layers {sizes.layers} do not ascend to the model's last, {len(tower.blocks)}"
        )


def find_tower(model: Any, *, field: str = FIELD) -> Tower:
    """Return the vision tower of a model; ``field`` names the setting that needs it."""
    family = getattr(model.config, "model_type", "")
    if family not in FAMILIES:
        raise ModelError(
            f"{field}: unsupported model type {family!r}; choose from {', '.join(FAMILIES)}"
        )
    vision = model.config.vision_config
    if family == "llava_onevision":
        if (last := model.config.vision_feature_layer) != -1:
            raise ModelError(f"{field}: this model uses layer {last}, not the last")
        whole, after = model.model.vision_tower, model.model.multi_modal_projector
        blocks = list(getattr(whole, "vision_model", whole).encoder.layers)
        return Tower(whole, blocks, after, vision.hidden_size, vision.num_attention_heads)
    whole = model.model.visual
    width = vision.embed_dim if family == "qwen2_vl" else vision.hidden_size
    return Tower(whole, list(whole.blocks), whole.merger, width, vision.num_heads)


class _Hooks:
    """Hooks that record a tower's blocks and change its output."""

    def __init__(self, module: DifferentialPerception, tower: Tower) -> None:
        self._module = module
        self._seen: dict[int, Tensor] = {}
        self._grids: list[tuple[int, ...]] = []
        self._recording = (
            False  # within the tower's forward pass; blocks may run again in the backward pass
        )
        tower.whole.register_forward_pre_hook(self._start, with_kwargs=True)
        for number in module.sizes.layers:
            tower.blocks[number - 1].register_forward_hook(partial(self._record, number))
        tower.after.register_forward_pre_hook(self._change)

    def _start(self, _tower: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._recording = True
        self._seen.clear()  # after a pass that failed
        grids = kwargs.get("grid_thw", args[1] if len(args) > 1 else None)
        self._grids = [] if grids is None else [tuple(grid) for grid in grids.tolist()]

    def _record(self, number: int, _block: nn.Module, _args: Any, out: Any) -> None:
        if self._recording:
            self._seen[number] = out[0] if isinstance(out, tuple) else out

    def _change(self, _after: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        features, scales = args[0], [self._seen[number] for number in self._module.sizes.layers]
        self._seen.clear()
        self._recording = False
        packed = features.dim() == 2  # (all tokens, width), else (images, tokens, width)
        grids = self._grids if packed else [(features.shape[1],)] * len(features)
        if len(grids) % 2:
            raise ModelError(f"{FIELD}: images must come in pairs, not {len(grids)}")
        for place in range(0, len(grids), 2):
            first, second = (" x ".join(map(str, grid[1:])) for grid in grids[place : place + 2])
            if first != second:
                raise ModelError(
                    f"{FIELD}: images {place + 1} and {place + 2} have grids {first} and {second}; give both one size"
                )
        if len(set(grids)) > 1:
            parts = [one.split([prod(grid) for grid in grids]) for one in scales]
            changed = (
                self._module([(one[place][None], one[place + 1][None]) for one in parts])
                for place in range(0, len(grids), 2)
            )
            return (torch.cat([one[0] for pair in changed for one in pair]), *args[1:])
        images = [one.reshape(len(grids), -1, one.shape[-1]) for one in scales]
        pairs = self._module([(one[::2], one[1::2]) for one in images])
        return (torch.stack(pairs, 1).reshape(features.shape), *args[1:])


def save_differential(
    model: Any, folder: Path, weights: "Mapping[str, Tensor] | None" = None
) -> None:
    """Write the module's weights and sizes; ``weights`` replaces the module's own, if sharded."""
    from safetensors.torch import save_file

    module: DifferentialPerception = getattr(model, NAME)
    weights = weights or module.state_dict()
    save_file(
        {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()},
        folder / WEIGHTS,
    )
    (folder / SIZES).write_text(
        module.sizes.model_dump_json(exclude={"enabled"}, indent=1), encoding="utf-8"
    )


def load_differential(model: Any, folder: Path) -> bool:
    """Attach the module saved beside a model's weights; return whether there is one."""
    if not (folder / SIZES).exists():
        return False
    try:
        sizes = DifferentialSizes.model_validate_json((folder / SIZES).read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder / SIZES}: invalid module sizes: {error}") from error
    _check(sizes, find_tower(model))
    weights = read_checkpoint(folder / WEIGHTS, field=FIELD)
    with torch.device("meta"):  # allocate nothing before sizes and weights are compared
        wanted = DifferentialPerception(sizes).state_dict()
    try:
        compare_shapes(shapes_of(weights), shapes_of(wanted))
    except ModelError as error:
        raise ModelError(f"{folder / WEIGHTS}: does not fit {SIZES}: {error}") from error
    attach(model, sizes).load_state_dict(weights)
    return True
