"""Differential perception of two images by a vision-language model (paper 002, M3Diff).

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
    """Both images, and Eq. 3's difference, of one scale: ``(B, tokens, width)`` each."""

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
        self.feature_norm = nn.LayerNorm(width)
        self.difference_norm = nn.LayerNorm(width)
        self.refine = Attention(width, sizes.heads)

    def forward(self, first: "Tensor", second: "Tensor") -> Perceived:
        """Return the perception of two images' features ``(B, tokens, width)``, aligned."""
        normed = self.feature_norm(first)
        other = self.feature_norm(second)
        blocks = self.blocks(normed, other)
        difference = self.join(torch.cat(blocks, dim=-1))
        refined = difference
        for layer in self.layers:
            refined = layer.attend_self(refined)
            tokens = torch.cat([normed, other, refined], dim=1)
            context = layer.other.keys_and_values(tokens)
            refined = layer.attend_other(refined, context)
        refined = self.difference_norm(refined)
        return Perceived(
            first + self._refine(normed, refined),
            second + self._refine(other, refined),
            difference,
        )

    def _refine(self, features: "Tensor", difference: "Tensor") -> "Tensor":
        tokens = torch.cat([features, difference], dim=1)
        context = self.refine.keys_and_values(tokens)
        return self.refine(features, context)

    def blocks(
        self,
        first: "Tensor",
        second: "Tensor",
    ) -> "tuple[Tensor, Tensor, Tensor]":
        """Return the inputs of Eq. 3: both images, weighted, and their difference.

        The images are weighted by each other (Eqs. 1 and 2).
        """
        left = self._weigh(first, second)
        right = self._weigh(second, first)
        return left, right, left - right

    def _weigh(self, features: "Tensor", other: "Tensor") -> "Tensor":
        both = torch.cat((features, other), -1)
        weights = self.weigh(both).sigmoid()
        return features * weights


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
        scores = width if sizes.weight_per == "channel" else 1
        self.score = nn.Sequential(
            nn.Linear(3 * width, width),
            nn.GELU(),
            nn.Linear(width, scores),
        )
        self.out = nn.Linear(width, width, bias=False)
        nn.init.zeros_(self.out.weight)

    def forward(
        self,
        scales: "Sequence[tuple[Tensor, Tensor]]",
    ) -> "tuple[Tensor, Tensor]":
        """Return the features of both images, ``(B, tokens, width)``, from those of each layer."""
        perceived = self._perceive(scales)
        weights = self._weigh(perceived)
        first, second = scales[-1]
        return (
            first + self._sum(weights, perceived.first),
            second + self._sum(weights, perceived.second),
        )

    def _perceive(self, scales: "Sequence[tuple[Tensor, Tensor]]") -> Perceived:
        """Return the perception of all scales, ``(layers, B, tokens, width)`` each."""
        repeats = len(scales) if self.sizes.shared_weights else 1
        modules = list(self.scales) * repeats
        outputs = [module(*pair) for module, pair in zip(modules, scales, strict=True)]
        return Perceived(
            torch.stack([output.first for output in outputs]),
            torch.stack([output.second for output in outputs]),
            torch.stack([output.difference for output in outputs]),
        )

    def _weigh(self, perceived: Perceived) -> "Tensor":
        """Return the weights of the scales, ``(layers, B, 1, width or 1)``."""
        means = [tensor.mean(2) for tensor in perceived]
        pooled = torch.cat(means, dim=-1)
        scores = self.score(pooled)[:, :, None]  # from (layers, B, 3 width)
        return scores.softmax(0) if self.sizes.softmax else scores.sigmoid()

    def _sum(self, weights: "Tensor", features: "Tensor") -> "Tensor":
        """Return the output of an image: its weighted features of all scales, mapped."""
        weighted = weights * features
        return self.out(weighted.sum(0))


def spread_layers(depth: int, count: int = 4) -> tuple[int, ...]:
    """Return the last block of a tower and earlier ones, a ninth of its depth apart.

    Of 26 blocks: 17, 20, 23, 26.
    """
    step = max(1, round(depth / 9))
    blocks = {max(1, depth - step * back) for back in range(count)}
    return tuple(sorted(blocks))


@dataclass(frozen=True, slots=True)
class Tower:
    """Hooked parts of a vision tower."""

    whole: nn.Module
    blocks: Sequence[nn.Module]
    after: nn.Module
    """Module that receives its features."""
    width: int
    heads: int


def attach(
    model: Any,
    sizes: DifferentialSizes | None = None,
    **settings: Any,
) -> DifferentialPerception:
    """Attach an untrained module to a transformers model, before PEFT or DDP wrap it.

    It changes nothing yet. ``settings`` are fields of ``DifferentialSizes`` that replace the
    defaults for the model.
    """
    tower = find_tower(model)
    defaults = DifferentialSizes(
        width=tower.width,
        heads=tower.heads,
        layers=spread_layers(len(tower.blocks)),
    )
    sizes = (sizes or defaults).model_copy(update=settings)
    _check(sizes, tower)
    weight = next(tower.whole.parameters())
    module = DifferentialPerception(sizes)
    module = module.to(device=weight.device, dtype=weight.dtype)
    setattr(model, NAME, module)
    _Hooks(module, tower)
    return module


def _check(sizes: DifferentialSizes, tower: Tower) -> None:
    if sizes.width != tower.width or sizes.width % sizes.heads:
        raise ModelError(
            f"{FIELD}: width {sizes.width} and {sizes.heads} heads do not fit "
            f"the model's {tower.width}"
        )
    depth = len(tower.blocks)
    ascends = list(sizes.layers) == sorted(set(sizes.layers))
    if not ascends or sizes.layers[-1] != depth:
        raise ModelError(
            f"{FIELD}: layers {sizes.layers} do not ascend to the model's last, {depth}"
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
        layer = model.config.vision_feature_layer
        if layer != -1:
            raise ModelError(f"{field}: this model uses layer {layer}, not the last")
        whole = model.model.vision_tower
        return Tower(
            whole=whole,
            blocks=list(getattr(whole, "vision_model", whole).encoder.layers),
            after=model.model.multi_modal_projector,
            width=vision.hidden_size,
            heads=vision.num_attention_heads,
        )
    whole = model.model.visual
    return Tower(
        whole=whole,
        blocks=list(whole.blocks),
        after=whole.merger,
        width=vision.embed_dim if family == "qwen2_vl" else vision.hidden_size,
        heads=vision.num_heads,
    )


class _Hooks:
    """Hooks that record a tower's blocks and change its output."""

    def __init__(self, module: DifferentialPerception, tower: Tower) -> None:
        self._module = module
        self._features: dict[int, Tensor] = {}
        self._grids: list[tuple[int, ...]] = []
        # Whether this is the tower's forward pass: blocks may run again in the backward pass.
        self._recording = False
        tower.whole.register_forward_pre_hook(self._start, with_kwargs=True)
        for number in module.sizes.layers:
            block = tower.blocks[number - 1]
            block.register_forward_hook(partial(self._record, number))
        tower.after.register_forward_pre_hook(self._change)

    def _start(
        self,
        _tower: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self._recording = True
        self._features.clear()  # after a pass that failed
        self._grids = []
        positional = args[1] if len(args) > 1 else None
        grids = kwargs.get("grid_thw", positional)
        if grids is not None:
            self._grids = [tuple(grid) for grid in grids.tolist()]

    def _record(
        self,
        number: int,
        _block: nn.Module,
        _args: Any,
        out: Any,
    ) -> None:
        if self._recording:
            self._features[number] = out[0] if isinstance(out, tuple) else out

    def _change(
        self,
        _after: nn.Module,
        args: tuple[Any, ...],
    ) -> tuple[Any, ...]:
        """Return the arguments of the module after the tower, with the differences added."""
        features = args[0]
        layers = self._module.sizes.layers
        scales = [self._features[number] for number in layers]
        self._features.clear()
        self._recording = False
        grids = self._grids
        if features.dim() != 2:  # (images, tokens, width), else (all tokens, width)
            tokens = features.shape[1]
            grids = [(tokens,)] * len(features)
        _check_grids(grids)
        if len(set(grids)) > 1:
            return (self._change_pairs(scales, grids), *args[1:])
        count = len(grids)
        images = [scale.reshape(count, -1, scale.shape[-1]) for scale in scales]
        pairs = [(image[::2], image[1::2]) for image in images]
        changed = torch.stack(self._module(pairs), 1)
        return (changed.reshape(features.shape), *args[1:])

    def _change_pairs(
        self,
        scales: "Sequence[Tensor]",
        grids: Sequence[tuple[int, ...]],
    ) -> "Tensor":
        """Return the changed features of pairs of different sizes, a pair at a time."""
        lengths = [prod(grid) for grid in grids]
        images_of_scales = [scale.split(lengths) for scale in scales]
        changed: list[Tensor] = []
        for number in range(0, len(grids), 2):
            pairs: list[tuple[Tensor, Tensor]] = []
            for images in images_of_scales:
                left = images[number][None]
                right = images[number + 1][None]
                pairs.append((left, right))
            first, second = self._module(pairs)
            changed += [first[0], second[0]]
        return torch.cat(changed)


def _check_grids(grids: Sequence[tuple[int, ...]]) -> None:
    """Refuse images without a partner, and pairs of different grids."""
    if len(grids) % 2:
        raise ModelError(f"{FIELD}: images must come in pairs, not {len(grids)}")
    for number in range(0, len(grids), 2):
        first = _describe_grid(grids[number])
        second = _describe_grid(grids[number + 1])
        if first != second:
            raise ModelError(
                f"{FIELD}: images {number + 1} and {number + 2} have grids "
                f"{first} and {second}; give both one size"
            )


def _describe_grid(grid: tuple[int, ...]) -> str:
    sides = map(str, grid[1:])
    return " x ".join(sides)


def save_differential(
    model: Any,
    folder: Path,
    weights: "Mapping[str, Tensor] | None" = None,
) -> None:
    """Write the module's weights and sizes; ``weights`` replaces the module's own, if sharded."""
    from safetensors.torch import save_file

    module: DifferentialPerception = getattr(model, NAME)
    tensors: dict[str, Tensor] = {}
    for name, tensor in (weights or module.state_dict()).items():
        tensors[name] = tensor.detach().cpu().contiguous()
    save_file(tensors, folder / WEIGHTS)
    sizes = module.sizes.model_dump_json(exclude={"enabled"}, indent=1)
    (folder / SIZES).write_text(sizes, encoding="utf-8")


def load_differential(model: Any, folder: Path) -> bool:
    """Attach the module saved beside a model's weights; return whether there is one."""
    sizes_path = folder / SIZES
    weights_path = folder / WEIGHTS
    if not sizes_path.exists():
        return False
    try:
        sizes = DifferentialSizes.model_validate_json(sizes_path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(f"{sizes_path}: invalid module sizes: {error}") from error
    _check(sizes, find_tower(model))
    weights = read_checkpoint(weights_path, field=FIELD)
    with torch.device("meta"):  # allocate nothing before sizes and weights are compared
        expected = DifferentialPerception(sizes).state_dict()
    try:
        compare_shapes(shapes_of(weights), shapes_of(expected))
    except ModelError as error:
        raise ModelError(f"{weights_path}: does not fit {SIZES}: {error}") from error
    module = attach(model, sizes)
    module.load_state_dict(weights)
    return True
