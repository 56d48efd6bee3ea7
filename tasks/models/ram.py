"""RAM tagger (Zhang et al., 2023): 4,585 tags of photographs.

Reads the published checkpoint with its lists of tags and thresholds, or local ones; needs PyTorch
and timm. An image is squeezed to the model's square, as by the authors' transform, and gets the
tags with probabilities above their own thresholds. On a GPU it computes in bfloat16 (autocast). On
a CPU the weights are memory-mapped: replace the file, never write into it.

Sizes follow from the checkpoint's shapes. After timm's Swin transformer each tag queries the
image's vectors through two layers of cross-attention, independent of other tags: BERT's layers,
after Query2Label without self-attention.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.errors import ModelError
from pairwright.schemas.removing import RamConfig
from pairwright.schemas.rows import Tag
from pairwright.tasks.models.adaptive_batches import AdaptiveBatches, Encoder
from pairwright.tasks.models.checkpoints import (
    Shapes,
    count_parts,
    fill_model,
    read_checkpoint,
    shapes_of,
)
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.models.prepare_ahead import DecodedImage
from pairwright.tasks.models.preprocess import Preprocess
from pairwright.tasks.models.weights import (
    PublishedFile,
    absolute,
    check_revision,
    find_published,
    identify_files,
    loading,
    require_modules,
)

if TYPE_CHECKING:
    from torch import Tensor

FIELD = "tagging.ram"
SPACE = "https://huggingface.co/spaces/xinyu1205/Recognize_Anything-Tag2Text/resolve/main/"
COMMIT = "7cb804a8609e9f4b1a50b7f31436d2df40bb9481"
LISTS = f"https://raw.githubusercontent.com/xinyu1205/recognize-anything/{COMMIT}/ram/data/"
SHA256 = "15c729c793af28b9d107c69f85836a1356d76ea830d4714699fb62e55fcc08ed"
FILES = {
    setting: PublishedFile(field=FIELD, name=name, url=address + name, sha256=sha256)
    for setting, address, name, sha256 in (
        ("checkpoint", SPACE, "ram_swin_large_14m.pth", SHA256),
        ("tags", LISTS, "ram_tag_list.txt", ""),
        ("thresholds", LISTS, "ram_tag_list_threshold.txt", ""),
    )
}
"""Published files by setting. No SHA-256 is published of the lists, but their address names a
commit."""
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
"""ImageNet's mean and deviation, as in the authors' transform."""
LOADING = Lock()
"""Held while threads that prepare images wait for the weights, or each would load them."""
MAX_IMAGES = 64
"""Images at once: more makes no GPU faster."""
IMAGES_ON_CPU = 4
DIGITS = 4
"""Digits of a written score: later ones depend on the batch size."""
SWIN = "visual_encoder."
LAYER = "tagging_head.encoder.layer."
OLD_HEAD = re.compile(r"^vision_multi\.")
"""Name of the head in some files."""
USED = re.compile(
    rf"{SWIN}(?!.*(relative_position_index|attn_mask)$)|{re.escape(LAYER)}\d+\.(crossattention|intermediate|output)\."
    r"|label_embed$|image_proj\.|wordvec_proj\.|fc\."
)
"""Weights of the tagger; the others write captions, are deleted by the authors, or follow from the
sizes."""
MERGING = re.compile(r"^layers\.(\d+)\.downsample\.")
HEADS = 4
"""Attention heads of each decoder layer, which no shape reveals."""
EPSILON = 1e-12
"""BERT's, in its normalisations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RamTagger:
    """Tagger by RAM; its weights are loaded at the first use, once per process."""

    config: RamConfig
    batch: int = 0
    name: str = "ram"

    @property
    def version(self) -> str:
        """Return the identity of the weights."""
        return f"RAM {self.config.revision or self.config.checkpoint or 'published'}"

    def prepare(self, image: DecodedImage) -> NDArray[np.uint8]:
        """Return the image in the model's square."""
        with LOADING:
            model = _load(self)
        return model.preprocess(image.pixels)

    def tag(self, prepared: Sequence[NDArray[np.uint8]]) -> list[tuple[Tag, ...]]:
        """Return the tags of each image, by falling probability."""
        model = _load(self)
        if not prepared:
            return []
        return [model.select_tags(scores) for scores in model.encoder.encode(prepared)]


class RamModel(NamedTuple):
    """Model on its device."""

    encoder: Encoder
    """From squares to ``(n, tags)`` probabilities."""
    names: tuple[str, ...]
    thresholds: NDArray[np.float32]
    preprocess: Preprocess

    def select_tags(self, scores: NDArray[np.float32]) -> tuple[Tag, ...]:
        """Return the tags above their thresholds, by falling probability."""
        if not np.isfinite(scores).all():
            raise ModelError(
                f"{FIELD}: the model gave probabilities that are not finite: "
                "its weights are damaged"
            )
        order = np.argsort(-scores, kind="stable")
        above = order[scores[order] > self.thresholds[order]]
        tags: list[Tag] = []
        for number in above.tolist():
            score = round(float(scores[number]), DIGITS)
            tags.append(Tag(name=self.names[number], score=score, tagger="ram"))
        return tuple(tags)


@lru_cache(maxsize=1)
def _load(tagger: RamTagger) -> RamModel:
    import torch

    weights, names, thresholds = _read(tagger.config)
    device = choose_device()
    swin = weights.swin.to(device)
    preprocess = transform_of(weights.swin.patch_embed.img_size[0])
    decoder = {name: tensor.to(device) for name, tensor in weights.decoder.items()}

    def probabilities(squares: "Tensor") -> "Tensor":
        pixels = preprocess.numbers(squares)
        patches = swin.forward_features(pixels).flatten(1, 2)
        whole = patches.mean(dim=1, keepdim=True)
        image = torch.cat([whole, patches], dim=1)
        logits = tag_logits(decoder, image)
        return logits.float().sigmoid()

    batches = AdaptiveBatches(tagger.batch, most=MAX_IMAGES, on_cpu=IMAGES_ON_CPU)
    return RamModel(
        Encoder(network=probabilities, device=device, batches=batches),
        names,
        thresholds,
        preprocess,
    )


def transform_of(side: int) -> Preprocess:
    """Return the authors' transform: the whole image squeezed into a square."""
    size = (side, side)
    return Preprocess(
        resize="exact",
        size=size,
        crop=size,
        interpolation="bilinear",
        mean=MEAN,
        std=STD,
    )


def pin_ram(config: RamConfig, *, download: bool) -> RamConfig:
    """Return the configuration with the hash of the local files; those named in it are checked."""
    require_modules(FIELD, "torch", "timm")
    files = find_ram(config, download=download)
    revision = identify_files(list(files.values()))
    local = {name: getattr(config, name) for name in FILES}
    named = {name: absolute(path) for name, path in local.items() if path}
    if named:
        _read(config)
    return config.model_copy(update={"revision": revision, **named})


def find_ram(config: RamConfig, *, download: bool) -> dict[str, Path]:
    """Return a configuration's files by its fields."""
    files: dict[str, Path] = {}
    for name, file in FILES.items():
        local = getattr(config, name)
        if local:
            path = Path(local).expanduser()
        else:
            path = find_published(file, download=download)
        if not path.is_file():
            raise ModelError(f"{FIELD}.{name}: {path}: no such file")
        files[name] = path
    revision = identify_files(list(files.values()))
    check_revision(FIELD, config.revision, revision, files["checkpoint"])
    return files


class RamWeights(NamedTuple):
    """Weights of a model, in float32 on the CPU."""

    swin: Any
    """timm's ``SwinTransformer``, from ``(n, 3, side, side)`` to ``(n, rows, columns, width)``."""
    decoder: "dict[str, Tensor]"
    """All other weights by their published keys."""


def _read(config: RamConfig) -> tuple[RamWeights, tuple[str, ...], NDArray[np.float32]]:
    files = find_ram(config, download=False)
    names, thresholds = read_tags(files["tags"], files["thresholds"])
    field = f"{FIELD}.checkpoint" if config.checkpoint else FIELD
    weights = load_ram(files["checkpoint"], field=field, tags=len(names))
    return weights, names, thresholds


def read_tags(tags: Path, thresholds: Path) -> tuple[tuple[str, ...], NDArray[np.float32]]:
    """Return the names of the tags, in the checkpoint's order, and their thresholds."""
    with loading(f"{FIELD}.tags", tags):
        lines = tags.read_text(encoding="utf-8").splitlines()
        names = tuple(line.strip() for line in lines)
    with loading(f"{FIELD}.thresholds", thresholds):
        numbers = thresholds.read_text(encoding="utf-8").split()
        values = np.array(numbers, dtype=np.float32)
        if len(values) != len(names):
            raise ValueError(f"{len(values):,} thresholds, and {tags} names {len(names):,} tags")
        if not ((values >= 0) & (values <= 1)).all():
            raise ValueError("not all are numbers from 0 to 1")
    return names, values


def load_ram(path: Path, *, field: str, tags: int) -> RamWeights:
    """Return the weights of a checkpoint of RAM with so many tags; ``field`` names it."""
    import torch

    checkpoint = read_checkpoint(path, field=field, under="model")
    tensors = {OLD_HEAD.sub("tagging_head.", name): tensor for name, tensor in checkpoint.items()}
    with loading(field, path):
        if "reweight_scale" in tensors:
            raise ValueError("it is a checkpoint of RAM++, of which the other keys are the same")
        weights = {name: tensor.float() for name, tensor in tensors.items() if USED.match(name)}
        swin = build_swin(shapes_of(weights))
        encoder = {
            _rename_swin(name): tensor for name, tensor in weights.items() if name.startswith(SWIN)
        }
        fill_model(swin, encoder)
        decoder = {name: tensor for name, tensor in weights.items() if not name.startswith(SWIN)}
        with torch.inference_mode():  # checks that every tensor is there and fits
            logits = tag_logits(decoder, torch.zeros(1, 1, swin.num_features))
        if logits.shape[1] != tags:
            raise ValueError(
                f"it has {logits.shape[1]:,} tags for a list of {tags:,} (tagging.ram.tags)"
            )
    return RamWeights(swin.requires_grad_(requires_grad=False).eval(), decoder)


def _rename_swin(name: str) -> str:
    """Return timm's name of a weight.

    timm merges patches at the start of a stage, the checkpoint at the end of the previous one.
    """

    def next_stage(match: re.Match[str]) -> str:
        return f"layers.{int(match[1]) + 1}.downsample."

    return MERGING.sub(next_stage, name.removeprefix(SWIN))


def build_swin(shapes: Shapes) -> Any:
    """Return timm's ``SwinTransformer`` of a checkpoint's shapes, with random weights.

    The last stage has one window, as in all published models.
    """
    from timm.models.swin_transformer import SwinTransformer

    embed_dim, _, patch, _ = shapes[f"{SWIN}patch_embed.proj.weight"]
    count = count_parts(shapes, f"{SWIN}layers.")
    stages = [f"{SWIN}layers.{stage}.blocks." for stage in range(count)]
    tables = [shapes[f"{stage}0.attn.relative_position_bias_table"] for stage in stages]
    window = (math.isqrt(tables[0][0]) + 1) // 2
    return SwinTransformer(
        img_size=patch * window << (len(stages) - 1),
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


def tag_logits(weights: "Mapping[str, Tensor]", image: "Tensor") -> "Tensor":
    """Return the logit of each tag, ``(n, tags)``, of images ``(n, 1 + patches, width)``.

    The first vector of an image is the mean of the others; ``weights`` has the decoder's published
    keys.
    """
    from torch.nn.functional import linear, relu

    patches = linear(image, weights["image_proj.weight"], weights["image_proj.bias"])
    labels = linear(
        weights["label_embed"][None],
        weights["wordvec_proj.weight"],
        weights["wordvec_proj.bias"],
    )
    tags = relu(labels)
    names = [name.removeprefix(LAYER) for name in weights if name.startswith(LAYER)]
    numbers = {name.partition(".")[0] for name in names}
    for number in range(len(numbers)):
        layer = DecoderLayer(weights, f"{LAYER}{number}.")
        tags = layer.attend(tags, patches)
    return linear(tags, weights["fc.weight"], weights["fc.bias"])[..., 0]


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """Layer of cross-attention from tags to an image."""

    weights: "Mapping[str, Tensor]"
    prefix: str
    """Start of the names of its weights."""

    def attend(self, tags: "Tensor", image: "Tensor") -> "Tensor":
        """Return the tags' vectors after the layer; queries of all images are computed once."""
        from torch.nn.functional import gelu, scaled_dot_product_attention

        query = self._heads("query", tags).expand(len(image), -1, -1, -1)
        keys = self._heads("key", image)
        values = self._heads("value", image)
        attended = scaled_dot_product_attention(query, keys, values)
        joined = attended.transpose(1, 2).flatten(2)
        gathered = self._project("crossattention.output.dense", joined)
        tags = self._normalise("crossattention.output", gathered + tags)
        hidden = gelu(self._project("intermediate.dense", tags))
        output = self._project("output.dense", hidden)
        return self._normalise("output", output + tags)

    def _project(self, name: str, values: "Tensor") -> "Tensor":
        from torch.nn.functional import linear

        name = f"{self.prefix}{name}"
        weight = self.weights[f"{name}.weight"]
        bias = self.weights[f"{name}.bias"]
        return linear(values, weight, bias)

    def _heads(self, name: str, values: "Tensor") -> "Tensor":
        projected = self._project(f"crossattention.self.{name}", values)
        return projected.unflatten(-1, (HEADS, -1)).transpose(1, 2)

    def _normalise(self, name: str, values: "Tensor") -> "Tensor":
        from torch.nn.functional import layer_norm

        name = f"{self.prefix}{name}.LayerNorm"
        return layer_norm(
            values,
            values.shape[-1:],
            self.weights[f"{name}.weight"],
            self.weights[f"{name}.bias"],
            EPSILON,
        )
