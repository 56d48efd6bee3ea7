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
    require_modules,
)

if TYPE_CHECKING:
    from torch import Tensor

CONTEXT_LENGTH = 77
"""Tokens of a text where a description gives no number."""
Clip = TypeVar("Clip", bound=ClipConfig)
FIELD = "embedding.clip"
SAFE = "open_clip_model.safetensors"
PICKLE = "open_clip_pytorch_model.bin"
FOLDER_CONFIG = "open_clip_config.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
SPECIAL_TOKENS = "special_tokens_map.json"
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
    """Return whether an image tower is a vision transformer with CLIP's projected class token."""
    from open_clip.transformer import VisionTransformer

    if not isinstance(visual, VisionTransformer):
        return False
    if visual.attn_pool is not None or visual.pool_type != "tok":
        return False
    return visual.proj is not None and not visual.final_ln_after_pool


def identify_clip(config: ClipConfig) -> str:
    """Return the model's name with its revision, from the configuration alone."""
    if config.checkpoint:
        return f"{config.model} {config.revision or config.checkpoint}"
    _, known = _find_known(config)
    revision = config.revision or known or "main"
    return f"{config.model} {config.pretrained} {revision}"


def _find_known(config: ClipConfig) -> tuple[str, str]:
    """Return the repository and default commit of a known model; empty: an unknown one."""
    return KNOWN.get(f"{config.model} {config.pretrained}", ("", ""))


def pin_clip(config: Clip, *, download: bool, field: str = FIELD) -> Clip:
    """Return the configuration with the revision of the local weights; ``field`` names it."""
    require_modules(field, "torch", "open_clip")
    if config.checkpoint:
        revision = identify_files(_local_files(config, field))
        check_revision(field, config.revision, revision, Path(config.checkpoint))
        update = {"revision": revision, "checkpoint": absolute(config.checkpoint)}
        pinned = config.model_copy(update=update)
        _check_tokenizer(pinned, field, download=download)
        return pinned
    weights = find_on_hub(_hub_files(config, field), download=download)
    pinned = config.model_copy(update={"revision": weights.parent.name})
    _check_tokenizer(pinned, field, download=download)
    return pinned


def _check_tokenizer(config: ClipConfig, field: str, *, download: bool) -> None:
    """Raise ``ModelError`` where a tokenizer is missing; fetch it first, if allowed.

    Texts are embedded late in a build, after the served models.
    """
    if Path(config.checkpoint).expanduser().is_dir() and config.checkpoint:
        create_tokenizer(config, field=field)
        return
    files = _tokenizer_files(config, field)
    if files:
        find_on_hub(files, download=download)


def _tokenizer_files(config: ClipConfig, field: str) -> HubFiles | None:
    """Return the files of a model's tokenizer; ``None``: it has CLIP's own, part of open_clip."""
    if _find_known(config)[0] and not config.checkpoint:
        return None
    import open_clip

    name = _add_described(config, field)
    description = open_clip.get_model_config(name) or {}
    repository = description.get("text_cfg", {}).get("hf_tokenizer_name", "")
    if not repository:
        return None
    is_of_weights = not config.checkpoint and _hub_files(config, field).repository == repository
    return HubFiles(
        field=field,
        repository=repository,
        revision=config.revision if is_of_weights else "",
        weights=(TOKENIZER,),
        extra=(TOKENIZER_CONFIG,),
        optional=(SPECIAL_TOKENS,),
        of_build=field == FIELD,
    )


def _local_files(config: ClipConfig, field: str) -> list[Path]:
    path = Path(config.checkpoint).expanduser()
    files = find_local(f"{field}.checkpoint", path)
    if path.is_dir() and not (path / FOLDER_CONFIG).is_file():
        raise ModelError(f"{field}.checkpoint: {path} holds no {FOLDER_CONFIG}")
    description = Path(config.model)
    if description.suffix == ".json" and description.is_file():
        files = [*files, description]
    return files


def _hub_files(config: ClipConfig, field: str) -> HubFiles:
    """Return a tag's weights by open_clip's table.

    The table takes seconds to load: the usual weights are in ``KNOWN``.
    """
    repository, revision = _find_known(config)
    weights = (SAFE, PICKLE)
    if not repository:
        repository, _, name = _tag(config, field)["hf_hub"].rpartition("/")
        if name.endswith((".bin", ".pth")):
            weights = (f"{Path(name).stem}.safetensors", name)
        elif name:
            weights = (name,)
    return HubFiles(
        field=field,
        repository=repository,
        revision=config.revision or revision,
        weights=weights,
        of_build=field == FIELD,
    )


def _tag(config: ClipConfig, field: str) -> dict[str, Any]:
    import open_clip

    _add_described(config, field)
    tag = open_clip.get_pretrained_cfg(config.model, config.pretrained)
    if not tag.get("hf_hub"):
        tags = ", ".join(open_clip.list_pretrained_tags_by_model(config.model)) or "another model"
        raise ModelError(
            f"{field}.pretrained: open_clip knows no weights {config.pretrained!r} of "
            f"{config.model}; choose from {tags}, or set {field}.checkpoint to a local file"
        )
    return tag


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
def load_encoder(config: ClipConfig, batch: int) -> tuple[Preprocess, Encoder]:
    """Return the model's transform, and the encoder of its image tower."""
    device = choose_device()
    tower = create_model(config).visual.eval().requires_grad_(requires_grad=False).to(device)
    preprocess = transform_of(tower.preprocess_cfg)

    def embed_crops(crops: "Tensor") -> "Tensor":
        output = tower(preprocess.numbers(crops))
        return output[0] if isinstance(output, tuple) else output  # some towers return tokens, too

    encoder = Encoder(network=embed_crops, device=device, batches=AdaptiveBatches(batch))
    return preprocess, encoder


def create_model(config: ClipConfig, *, field: str = FIELD) -> Any:
    """Return the whole model with its weights, both towers, by open_clip's own loader."""
    import open_clip

    if not config.checkpoint:
        return _create_from_hub(config, field)
    path = Path(config.checkpoint).expanduser()
    check_revision(field, config.revision, identify_files(_local_files(config, field)), path)
    with loading(f"{field}.checkpoint", path):
        if path.is_dir():
            return open_clip.create_model(
                f"local-dir:{path}",
                require_pretrained=True,
                weights_only=True,
            )
        return open_clip.create_model(
            _add_described(config, field),
            pretrained=str(path),
            weights_only=True,
        )


def _create_from_hub(config: ClipConfig, field: str) -> Any:
    """Return the model with the weights of its tag, from the Hub's local cache."""
    import open_clip

    weights = find_on_hub(_hub_files(config, field), download=False)
    tag = _tag(config, field)
    has_quick_gelu = bool(tag.get("quick_gelu"))
    description = open_clip.get_model_config(config.model) or {}
    # open_clip does not check this for local paths.
    if description.get("quick_gelu") and not has_quick_gelu:
        raise ModelError(
            f"{field}.model: {config.model}: the weights {config.pretrained} were trained with "
            f"GELU, this model computes QuickGELU: "
            f"set it to {config.model.removesuffix('-quickgelu')}"
        )
    options: dict[str, Any] = {
        "force_preprocess_cfg": tag,
        "force_quick_gelu": has_quick_gelu,
        "weights_only": True,
    }
    with loading(field, weights):
        return open_clip.create_model(config.model, pretrained=str(weights), **options)


def create_tokenizer(config: ClipConfig, *, field: str = FIELD) -> Any:
    """Return the model's tokenizer, which truncates texts to its length."""
    import open_clip
    from open_clip.tokenizer import HFTokenizer

    folder = Path(config.checkpoint).expanduser()
    is_folder = bool(config.checkpoint) and folder.is_dir()
    path = folder if is_folder else Path(config.model)
    with loading(f"{field}, tokenizer", path):
        if is_folder:
            return open_clip.get_tokenizer(f"local-dir:{folder}")
        name = _add_described(config, field)
        files = _tokenizer_files(config, field)
        if files is None:
            return open_clip.get_tokenizer(name)
        local = find_on_hub(files, download=False).parent
        text = (open_clip.get_model_config(name) or {})["text_cfg"]
        return HFTokenizer(
            str(local),
            context_length=text.get("context_length", CONTEXT_LENGTH),
            tokenizer_mode=text.get("tokenizer_mode"),
            **text.get("tokenizer_kwargs", {}),
        )


def transform_of(cfg: dict[str, Any]) -> Preprocess:
    """Return the validation transform of open_clip's ``image_transform_v2``."""
    side = cfg["size"]
    size = (side, side) if isinstance(side, int) else tuple(side)
    mode = cfg.get("resize_mode") or "shortest"
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
