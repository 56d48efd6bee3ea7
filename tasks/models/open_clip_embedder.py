"""CLIP embedder: the projected image embedding of an open_clip model.

Reads weights from a local file, a folder with ``open_clip_config.json``, or the Hub's local cache,
safetensors first; pickles are read with ``weights_only``. Needs PyTorch and open_clip. Images are
prepared as by open_clip's ``preprocess_val``. Only the image tower stays in memory.
"""

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pairwright.schemas.config import ClipConfig
from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.adaptive_batches import AdaptiveBatches, Encoder
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.models.preprocess import Preprocess
from pairwright.tasks.models.weights import (
    HubFiles,
    absolute,
    check_revision,
    find_local,
    find_on_hub,
    identify_files,
    loading,
    require_packages,
)

if TYPE_CHECKING:
    from torch import Tensor

Clip = TypeVar("Clip", bound=ClipConfig)
FIELD = "embedding.clip"
SAFE, PICKLE = "open_clip_model.safetensors", "open_clip_pytorch_model.bin"
FOLDER_CONFIG = "open_clip_config.json"
KNOWN = {
    "ViT-L-14-quickgelu openai": (
        "timm/vit_large_patch14_clip_224.openai",
        "18d0535469bb561bf468d76c1d73aa35156c922b",
    ),
    "ViT-B-32-quickgelu openai": (
        "timm/vit_base_patch32_clip_224.openai",
        "a6f597a30f7b82c51704746581f9a4e41421e878",
    ),
    "ViT-B-16-quickgelu openai": (
        "timm/vit_base_patch16_clip_224.openai",
        "977e3dd0ec55ab8da155f2fbeb6b5f54948b6e3d",
    ),
}
"""Repositories of the profiles' models and tags in open_clip's table, and default commits."""


def has_class_token(visual: Any) -> bool:
    """Return whether an image tower is a plain vision transformer of CLIP's form with a projected class token."""
    from open_clip.transformer import VisionTransformer

    plain = (
        isinstance(visual, VisionTransformer)
        and visual.attn_pool is None
        and visual.pool_type == "tok"
    )
    return plain and visual.proj is not None and not visual.final_ln_after_pool


def identify(config: ClipConfig) -> str:
    """Return the model's name with its revision, from the configuration alone."""
    if config.checkpoint:
        return f"{config.model} {config.revision or config.checkpoint}"
    revision = config.revision or KNOWN.get(f"{config.model} {config.pretrained}", ("", ""))[1]
    return f"{config.model} {config.pretrained} {revision or 'main'}"


def pin_clip(config: Clip, *, download: bool, field: str = FIELD) -> Clip:
    """Return the configuration with the revision of the local weights; ``field`` names it."""
    require_packages(field, "torch", "open_clip")
    if config.checkpoint:
        found = identify_files(_local_files(config, field))
        check_revision(field, config.revision, found, Path(config.checkpoint))
        return config.model_copy(
            update={"revision": found, "checkpoint": absolute(config.checkpoint)}
        )
    weights = find_on_hub(_hub_files(config, field), download=download)
    return config.model_copy(update={"revision": weights.parent.name})


def _local_files(config: ClipConfig, field: str) -> list[Path]:
    path, described = Path(config.checkpoint).expanduser(), Path(config.model)
    files = find_local(f"{field}.checkpoint", path)
    if path.is_dir() and not (path / FOLDER_CONFIG).is_file():
        raise ModelError(f"{field}.checkpoint: {path} holds no {FOLDER_CONFIG}")
    return [*files, described] if described.suffix == ".json" and described.is_file() else files


def _hub_files(config: ClipConfig, field: str) -> HubFiles:
    """Return a tag's weights by open_clip's table, which takes seconds to load: the usual ones are known."""
    repository, revision = KNOWN.get(f"{config.model} {config.pretrained}", ("", ""))
    weights = (SAFE, PICKLE)
    if not repository:
        repository, _, name = _tag(config, field)["hf_hub"].rpartition("/")
        if name:
            weights = (
                (f"{Path(name).stem}.safetensors", name)
                if name.endswith((".bin", ".pth"))
                else (name,)
            )
    revision = config.revision or revision
    return HubFiles(
        field=field,
        repository=repository,
        revision=revision,
        weights=weights,
        of_build=field == FIELD,
    )


def _tag(config: ClipConfig, field: str) -> dict[str, Any]:
    import open_clip

    _add_described(config, field)
    found = open_clip.get_pretrained_cfg(config.model, config.pretrained)
    if not found.get("hf_hub"):
        tags = ", ".join(open_clip.list_pretrained_tags_by_model(config.model)) or "another model"
        raise ModelError(
            f"{field}.pretrained: open_clip knows no weights {config.pretrained!r} of {config.model}; choose from "
            f"{tags}, or set {field}.checkpoint to a local file"
        )
    return found


def _add_described(config: ClipConfig, field: str) -> str:
    """Return open_clip's name of the model, after registering a JSON description."""
    import open_clip

    if not config.model.endswith(".json"):
        return config.model
    if not Path(config.model).is_file():
        raise ModelError(f"{field}.model: {config.model}: no such file")
    open_clip.add_model_config(config.model)
    return Path(config.model).stem


@lru_cache(maxsize=1)
def load(config: ClipConfig, batch: int) -> tuple[Preprocess, Encoder]:
    """Return the model's transform, and the encoder of its image tower."""
    device = choose_device()
    tower = create_model(config).visual.eval().requires_grad_(requires_grad=False).to(device)
    preprocess = transform_of(tower.preprocess_cfg)

    def embed(crops: "Tensor") -> "Tensor":
        made = tower(preprocess.numbers(crops))
        return made[0] if isinstance(made, tuple) else made  # some towers also return tokens

    return preprocess, Encoder(network=embed, device=device, batches=AdaptiveBatches(batch))


def create_model(config: ClipConfig, *, field: str = FIELD) -> Any:
    """Return the whole model with its weights, both towers, by open_clip's own loader."""
    import open_clip

    if not config.checkpoint:
        weights, tag = find_on_hub(_hub_files(config, field), download=False), _tag(config, field)
        quick, described = (
            bool(tag.get("quick_gelu")),
            open_clip.get_model_config(config.model) or {},
        )
        if (
            described.get("quick_gelu") and not quick
        ):  # open_clip does not check this for local paths
            raise ModelError(
                f"{field}.model: {config.model}: the weights {config.pretrained} were trained with GELU, this model "
                f"computes QuickGELU: set it to {config.model.removesuffix('-quickgelu')}"
            )
        options: dict[str, Any] = {
            "force_preprocess_cfg": tag,
            "force_quick_gelu": quick,
            "weights_only": True,
        }
        with loading(field, weights):
            return open_clip.create_model(config.model, pretrained=str(weights), **options)
    path = Path(config.checkpoint).expanduser()
    check_revision(field, config.revision, identify_files(_local_files(config, field)), path)
    with loading(f"{field}.checkpoint", path):
        if path.is_dir():
            return open_clip.create_model(
                f"local-dir:{path}", require_pretrained=True, weights_only=True
            )
        return open_clip.create_model(
            _add_described(config, field), pretrained=str(path), weights_only=True
        )


def create_tokenizer(config: ClipConfig, *, field: str = FIELD) -> Any:
    """Return the model's tokenizer, which truncates texts to its length."""
    import open_clip

    folder = Path(config.checkpoint).expanduser()
    is_folder = bool(config.checkpoint) and folder.is_dir()
    with loading(f"{field}, tokenizer", folder if is_folder else Path(config.model)):
        return open_clip.get_tokenizer(
            f"local-dir:{folder}" if is_folder else _add_described(config, field)
        )


def transform_of(cfg: dict[str, Any]) -> Preprocess:
    """Return the validation transform of open_clip's ``image_transform_v2`` with this configuration."""
    side, mode = cfg["size"], cfg.get("resize_mode") or "shortest"
    size = (side, side) if isinstance(side, int) else tuple(side)
    if mode not in ("shortest", "squash") or (mode == "shortest" and size[0] != size[1]):
        raise ModelError(f"{FIELD}: unsupported image preparation: {mode} to {size}")
    return Preprocess(
        resize="exact" if mode == "squash" else "shortest",
        size=size,
        crop=size,
        interpolation="bilinear" if cfg.get("interpolation") == "bilinear" else "bicubic",
        mean=cfg["mean"],
        std=cfg["std"],
    )
