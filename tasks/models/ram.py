"""RAM (Zhang et al., 2023) and RAM++ (Huang et al., 2023) taggers: 4,585 tags of photographs.

Reads the published checkpoints with their lists of tags and thresholds, or local ones; needs PyTorch and timm. An image
is squeezed to the model's square, as by the authors' transform, and gets the tags with probabilities above their own
thresholds. On a GPU it computes in bfloat16 (autocast). On a CPU the weights are memory-mapped: replace the file, never
write into it.

Sizes follow from the checkpoint's shapes. After timm's Swin transformer each tag queries the image's vectors through
two layers of cross-attention, independent of other tags: BERT's layers, after Query2Label without self-attention. RAM
has one vector per tag; RAM++ 51, of descriptions, weighted by their fit to the image.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.errors import ModelError
from pairwright.schemas.removing import RamConfig
from pairwright.schemas.rows import Tag
from pairwright.tasks.models.batches import Batches, Encoder
from pairwright.tasks.models.checkpoints import Shapes, count_parts, fill_model, read_checkpoint, shapes_of
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.models.prepare_ahead import Seen
from pairwright.tasks.models.preprocess import Preprocess
from pairwright.tasks.models.weights import (
    PublishedFile,
    absolute,
    check_revision,
    find_published,
    identify_files,
    require_packages,
)

if TYPE_CHECKING:
    from torch import Tensor

FIELD = "tagging.ram"
HUB = "https://huggingface.co/"
LISTS = (
    "https://raw.githubusercontent.com/xinyu1205/recognize-anything/7cb804a8609e9f4b1a50b7f31436d2df40bb9481/ram/data/"
)
RAM = PublishedFile(
    field=FIELD,
    name="ram_swin_large_14m.pth",
    url=f"{HUB}spaces/xinyu1205/Recognize_Anything-Tag2Text/resolve/main/ram_swin_large_14m.pth",
    sha256="15c729c793af28b9d107c69f85836a1356d76ea830d4714699fb62e55fcc08ed",
)
RAM_PLUS = PublishedFile(
    field=FIELD,
    name="ram_plus_swin_large_14m.pth",
    url=f"{HUB}xinyu1205/recognize-anything-plus-model/resolve/main/ram_plus_swin_large_14m.pth",
    sha256="497c178836ba66698ca226c7895317e6e800034be986452dbd2593298d50e87d",
)
TAGS = PublishedFile(field=FIELD, name="ram_tag_list.txt", url=f"{LISTS}ram_tag_list.txt")
"""4,585 names, the same for both models. No SHA-256 is published, but the address names a commit."""
THRESHOLDS = PublishedFile(field=FIELD, name="ram_tag_list_threshold.txt", url=f"{LISTS}ram_tag_list_threshold.txt")
THRESHOLD = 0.68  # the public code's default for tags without their own threshold
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's, as in the authors' transform
MAX_IMAGES, IMAGES_ON_CPU = 64, 4  # images at once: more makes no GPU faster
DIGITS = 4  # of a written score: later digits depend on the batch size
SWIN, HEAD = "visual_encoder.", "tagging_head."
LAYER = f"{HEAD}encoder.layer."
OLD_HEAD = re.compile(r"^vision_multi\.")  # name of the head in some files
UNUSED = re.compile(rf"(?!{SWIN}|{HEAD}|label_embed|reweight_scale|image_proj\.|wordvec_proj\.|fc\.)")
"""Caption parts (``tag_encoder``, ``text_decoder``)."""
DELETED = re.compile(rf"{re.escape(HEAD)}embeddings\.|{re.escape(LAYER)}\d+\.attention\.")
"""Parts of BERT that the authors delete from the head."""
COMPUTED = re.compile(r"\.(relative_position_index|attn_mask)$")  # tensors that follow from the sizes
MERGING = re.compile(r"^layers\.(\d+)\.downsample\.")
HEADS = 4  # attention heads of each decoder layer, which no shape reveals
EPSILON = 1e-12  # BERT's, in its normalisations


@dataclass(frozen=True, slots=True, kw_only=True)
class RamWeights:
    """Weights of a model, in float32 on the CPU."""

    swin: Any  # timm's ``SwinTransformer``, from ``(n, 3, side, side)`` to ``(n, rows, columns, width)``
    side: int  # pixels per side of its input
    decoder: "dict[str, Tensor]"  # all other weights by their published keys


@dataclass(frozen=True, slots=True, kw_only=True)
class RamTagger:
    """Tagger by RAM or RAM++; its weights are loaded at the first use, once per process."""

    config: RamConfig
    plus: bool = False
    batch: int = 0

    @property
    def version(self) -> str:
        """Return the identity of the weights."""
        return f"{'RAM++' if self.plus else 'RAM'} {self.config.revision or self.config.checkpoint or 'published'}"

    @property
    def prepare(self) -> Callable[[Seen], NDArray[np.uint8]]:
        """Return the transform to the model's square; picklable, without weights."""
        return partial(_squeeze, self.model.preprocess)

    def tag(self, prepared: Sequence[NDArray[np.uint8]]) -> list[tuple[Tag, ...]]:
        """Return the tags of each image, by falling probability."""
        model, name = self.model, "ram-plus" if self.plus else "ram"
        found: list[tuple[Tag, ...]] = []
        for row in model.encoder.encode(prepared) if prepared else ():
            if not np.isfinite(row).all():
                raise ModelError(f"{FIELD}: the model gave probabilities that are not finite: its weights are damaged")
            above = sorted(np.flatnonzero(row > model.thresholds).tolist(), key=lambda place: (-row[place], place))
            scores = [(model.names[place], round(float(row[place]), DIGITS)) for place in above]
            found.append(tuple(Tag(name=tag, score=score, tagger=name) for tag, score in scores))
        return found

    @property
    def model(self) -> "RamModel":
        """Return the loaded model."""
        return _load(self.config.model_dump_json(), self.plus, self.batch)


def _squeeze(preprocess: Preprocess, seen: Seen) -> NDArray[np.uint8]:
    return preprocess(seen.pixels)


class RamModel(NamedTuple):
    """Model on its device."""

    encoder: Encoder  # from squares to ``(n, tags)`` probabilities
    names: tuple[str, ...]
    thresholds: NDArray[np.float32]
    preprocess: Preprocess


@lru_cache(maxsize=1)
def _load(configuration: str, plus: bool, batch: int) -> RamModel:  # noqa: FBT001 - lru_cache's keys
    import torch

    weights, names, thresholds = _read(RamConfig.model_validate_json(configuration), plus=plus)
    device = choose_device()
    swin, preprocess = weights.swin.to(device), transform_of(weights.side)
    decoder = {name: tensor.to(device) for name, tensor in weights.decoder.items()}

    def probabilities(squares: "Tensor") -> "Tensor":
        patches = swin.forward_features(preprocess.numbers(squares)).flatten(1, 2)
        whole = patches.mean(dim=1, keepdim=True)
        return tag_logits(decoder, torch.cat([whole, patches], dim=1), len(names)).float().sigmoid()

    encoder = Encoder(
        network=probabilities, device=device, batches=Batches(batch, most=MAX_IMAGES, on_cpu=IMAGES_ON_CPU)
    )
    return RamModel(encoder, names, np.array(thresholds, dtype=np.float32), preprocess)


def transform_of(side: int) -> Preprocess:
    """Return the authors' transform: the whole image squeezed into a square."""
    return Preprocess(
        resize="exact", size=(side, side), crop=(side, side), interpolation="bilinear", mean=MEAN, std=STD
    )


def pin_ram(config: RamConfig, *, plus: bool, download: bool) -> RamConfig:
    """Return the configuration with the hash of the local files; those named in it are checked."""
    require_packages(FIELD, "torch", "timm")
    revision = identify_files(list(find_ram(config, plus=plus, download=download).values()))
    named = {name: path for name in ("checkpoint", "tags", "thresholds") if (path := getattr(config, name))}
    if named:
        _read(config, plus=plus)
    return config.model_copy(update={"revision": revision} | {name: absolute(path) for name, path in named.items()})


def find_ram(config: RamConfig, *, plus: bool, download: bool) -> dict[str, Path]:
    """Return a configuration's files by its fields; local tags without thresholds share the default one."""
    published = {"checkpoint": RAM_PLUS if plus else RAM, "tags": TAGS, "thresholds": THRESHOLDS}
    if config.tags and not config.thresholds:
        del published["thresholds"]
    files: dict[str, Path] = {}
    for name, file in published.items():
        local = getattr(config, name)
        files[name] = Path(local).expanduser() if local else find_published(file, download=download)
        if not files[name].is_file():
            raise ModelError(f"{FIELD}.{name}: {files[name]}: no such file")
    if config.revision:
        check_revision(FIELD, config.revision, identify_files(list(files.values())), files["checkpoint"])
    return files


def _read(config: RamConfig, *, plus: bool) -> tuple[RamWeights, tuple[str, ...], tuple[float, ...]]:
    files = find_ram(config, plus=plus, download=False)
    names, thresholds = read_tags(files["tags"], files.get("thresholds"))
    field = f"{FIELD}.checkpoint" if config.checkpoint else FIELD
    return load_ram(files["checkpoint"], field=field, plus=plus, tags=len(names)), names, thresholds


def read_tags(tags: Path, thresholds: Path | None) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Return the names of the tags, in the checkpoint's order, and their thresholds."""
    names = _lines(tags, "tags")
    if not names or not all(names):
        raise ModelError(f"{FIELD}.tags: {tags}: line {[*names, ''].index('') + 1} is empty")
    if thresholds is None:
        return names, (THRESHOLD,) * len(names)
    lines = _lines(thresholds, "thresholds")
    if len(lines) != len(names):
        raise ModelError(
            f"{FIELD}.thresholds: {thresholds} has {len(lines):,} lines, and {tags} names {len(names):,} tags"
        )
    try:
        least = tuple(map(float, lines))
    except ValueError as error:
        raise ModelError(f"{FIELD}.thresholds: {thresholds}: {error}") from error
    if not all(0 <= value <= 1 for value in least):  # NaN is neither
        raise ModelError(f"{FIELD}.thresholds: {thresholds}: not all are numbers from 0 to 1")
    return names, least


def _lines(path: Path, name: str) -> tuple[str, ...]:
    try:
        return tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{FIELD}.{name}: {path} cannot be read: {error}") from error


def load_ram(path: Path, *, field: str, plus: bool, tags: int) -> RamWeights:
    """Return the weights of a checkpoint of RAM or RAM++ with so many tags; ``field`` names it."""
    read = {
        OLD_HEAD.sub(HEAD, name): value for name, value in read_checkpoint(path, field=field, under="model").items()
    }
    tensors = {name: value for name, value in read.items() if not UNUSED.match(name) and not DELETED.match(name)}
    try:
        return _fill(tensors, plus=plus, tags=tags)
    except ModelError as error:
        raise ModelError(f"{field}: {path}: {error}") from error
    except Exception as error:  # invalid shapes: errors of timm and PyTorch
        raise ModelError(f"{field}: {path}: not a checkpoint of RAM: {type(error).__name__}: {error}") from error


def _fill(tensors: "Mapping[str, Tensor]", *, plus: bool, tags: int) -> RamWeights:
    import torch

    if "label_embed" in tensors and plus != ("reweight_scale" in tensors):  # their other keys are the same
        found, wanted = ("RAM", "ram") if plus else ("RAM++", "ram-plus")
        raise ModelError(f"it is a checkpoint of {found}: set tagging.taggers to {wanted}, or name another file")
    weights = {name: tensor.float() for name, tensor in tensors.items() if not COMPUTED.search(name)}
    swin = build_swin(shapes_of(tensors))
    # timm merges patches at the start of a stage, the checkpoint at the end of the previous one.
    parts = {
        MERGING.sub(lambda found: f"layers.{int(found[1]) + 1}.downsample.", name.removeprefix(SWIN)): tensor
        for name, tensor in weights.items()
        if name.startswith(SWIN)
    }
    fill_model(swin, parts)
    decoder = {name: tensor for name, tensor in weights.items() if not name.startswith(SWIN)}
    rows, what = len(decoder["label_embed"]), "descriptions" if plus else "tags"
    if rows % tags if plus else rows != tags:
        raise ModelError(f"it has {rows:,} {what} for a list of {tags:,} tags (tagging.ram.tags)")
    with torch.inference_mode():
        tag_logits(decoder, torch.zeros(1, 1, swin.num_features), tags)  # checks that every tensor is there and fits
    side = swin.patch_embed.img_size[0]
    return RamWeights(swin=swin.requires_grad_(requires_grad=False).eval(), side=side, decoder=decoder)


def build_swin(shapes: Shapes) -> Any:
    """Return timm's ``SwinTransformer`` of a checkpoint's shapes, with random weights.

    The masks of shifted windows give the image size; without them, the last stage has one window, as in all published
    models.
    """
    from timm.models.swin_transformer import SwinTransformer

    embed_dim, _, patch, _ = shapes[f"{SWIN}patch_embed.proj.weight"]
    stages = [f"{SWIN}layers.{stage}.blocks." for stage in range(count_parts(shapes, f"{SWIN}layers."))]
    tables = [shapes[f"{stage}0.attn.relative_position_bias_table"] for stage in stages]
    window = (math.isqrt(tables[0][0]) + 1) // 2
    masks = shapes.get(f"{SWIN}layers.0.blocks.1.attn_mask")
    return SwinTransformer(
        img_size=patch * window * (math.isqrt(masks[0]) if masks else 1 << (len(stages) - 1)),
        patch_size=patch,
        embed_dim=embed_dim,
        depths=tuple(count_parts(shapes, stage) for stage in stages),
        num_heads=tuple(heads for _, heads in tables),
        window_size=window,
        mlp_ratio=shapes[f"{stages[0]}0.mlp.fc1.weight"][0] / embed_dim,
        num_classes=0,
        drop_path_rate=0.0,
        weight_init="skip",
    )


def tag_logits(weights: "Mapping[str, Tensor]", image: "Tensor", tags: int) -> "Tensor":
    """Return the logit of each tag, ``(n, tags)``, of images ``(n, 1 + patches, width)``.

    The first vector of an image is the mean of the others; ``weights`` has the decoder's published keys.
    """
    from torch.nn.functional import linear, relu

    seen = linear(image, weights["image_proj.weight"], weights["image_proj.bias"])
    labels = weights["label_embed"][None]
    if "reweight_scale" in weights:
        labels = _weigh_descriptions(weights, seen[:, 0], tags)
    asked = relu(linear(labels, weights["wordvec_proj.weight"], weights["wordvec_proj.bias"]))
    for layer in range(len({name[len(LAYER) :].partition(".")[0] for name in weights if name.startswith(LAYER)})):
        asked = _attend(weights, f"{LAYER}{layer}.", asked, seen)
    return linear(asked, weights["fc.weight"], weights["fc.bias"])[..., 0]


def _weigh_descriptions(weights: "Mapping[str, Tensor]", image: "Tensor", tags: int) -> "Tensor":
    """Return the mean of each tag's descriptions, weighted by their fit to the image ``(n, width)``.

    The result is ``(n, tags, width)``, in the precision of ``label_embed``, without autocast.
    """
    import torch

    with torch.autocast(image.device.type, enabled=False):
        described = weights["label_embed"].view(tags, -1, image.shape[-1])
        direction = torch.nn.functional.normalize(image.to(described.dtype), dim=-1)
        fit = weights["reweight_scale"].exp() * torch.einsum("nw,tdw->tnd", direction, described)
        return torch.bmm(fit.softmax(dim=-1), described).transpose(0, 1)


def _attend(weights: "Mapping[str, Tensor]", layer: str, tags: "Tensor", image: "Tensor") -> "Tensor":
    """Return the tags' vectors after one layer of cross-attention; queries equal for all images are computed once."""
    from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

    def project(name: str, values: "Tensor") -> "Tensor":
        return linear(values, weights[f"{layer}{name}.weight"], weights[f"{layer}{name}.bias"])

    def heads(name: str, values: "Tensor") -> "Tensor":
        return project(f"crossattention.self.{name}", values).unflatten(-1, (HEADS, -1)).transpose(1, 2)

    def normalised(name: str, values: "Tensor") -> "Tensor":
        name = f"{layer}{name}.LayerNorm"
        return layer_norm(values, values.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], EPSILON)

    query = heads("query", tags).expand(len(image), -1, -1, -1)
    found = scaled_dot_product_attention(query, heads("key", image), heads("value", image))
    gathered = project("crossattention.output.dense", found.transpose(1, 2).flatten(2))
    tags = normalised("crossattention.output", gathered + tags)
    return normalised("output", project("output.dense", gelu(project("intermediate.dense", tags))) + tags)
