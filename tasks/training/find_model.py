"""Find the model that a run starts from: a folder, or a Hub name in the local cache.

Reads file names, JSON and, of local files, bytes for a hash. Loads and fetches nothing; needs no
PyTorch.
"""

import importlib.util
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pairwright.schemas.errors import ConfigError, ModelError
from pairwright.schemas.rows import make_key
from pairwright.schemas.training import SIZES, WEIGHTS, DifferentialConfig
from pairwright.tasks.models.weights import LOCAL, identify_files, is_local
from pairwright.tasks.store.manifest import MANIFEST, refuse_damage

NAME = "model.name"
PACKAGES = ("torch", "transformers", "peft", "accelerate", "huggingface_hub", "safetensors")
INSTALL = "python -m pip install -c constraints.txt -e '.[cpu,train]'"
CONFIG, WHOLE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
ADAPTERS, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
TUNED = "tuned.safetensors"  # weights trained in full beside adapters
PROCESSOR = (
    "preprocessor_config.json",
    "processor_config.json",
)  # a vision-language model has one of them
READ = (".json", ".jinja", ".txt", ".model")
"""Endings of the files beside the weights that loaders read, except ``NOT_READ``."""
NOT_READ = ("generation_config.json", MANIFEST)
MOST_BYTES = 64 << 20  # maximum size of a JSON file, against hostile ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Local files of a model, and its identity."""

    folder: Path
    revision: (
        str  # a Hub commit, or the hash of all loaded files, the base model of adapters included
    )
    identity: str  # the revision; for adapters combined with that of their base model
    base: tuple[str, str] = ("", "")  # for adapters: name and commit, if given, of their base model


def require_packages(what: str = "training") -> None:
    """Raise ``ModelError`` where a package that ``what`` needs is missing."""
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        raise ModelError(f"{what} needs {', '.join(missing)}, not installed here: {INSTALL}")


def require_bits(field: str) -> None:
    """Refuse a setting that needs bitsandbytes where it is missing."""
    if importlib.util.find_spec("bitsandbytes") is None:
        raise ConfigError(
            f"{field}: needs bitsandbytes, not installed here: {INSTALL.replace('train', 'train,qlora')}"
        )


def find_model(name: str, revision: str = "", *, field: str = NAME) -> Found:
    """Return the files of a model, a folder or a name on the Hub; ``field`` is the setting that names it.

    ``revision``: the required commit, or hash of a folder's files; empty: any.
    """
    require_packages()
    found, local = _find(name, revision, field), is_local(name)
    if found.base[0]:
        base = _find(*found.base, field)
        if base.base[0]:
            raise ModelError(
                f"{field}: {found.folder} holds adapters, and so does its base {base.folder}: merge one"
            )
        identity = LOCAL + make_key(found.revision, base.revision)
        found = replace(found, identity=identity, revision=identity if local else found.revision)
    if revision and found.revision != revision and local:
        raise ModelError(
            f"{field}: {found.folder} has changed since the run began ({found.revision}, not {revision}): restore it, "
            "or start over with another --name"
        )
    return found


def _find(name: str, revision: str, field: str) -> Found:
    if is_local(name):
        folder = Path(name).expanduser().absolute()
        refuse_damage(folder, field=field)
        return _inspect_folder(folder, field)
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    advice = f"Fetch it with: hf download {name}{f' --revision {revision}' if revision else ''}"
    try:
        folder = Path(snapshot_download(name, revision=revision or None, local_files_only=True))
        return _inspect_folder(folder, field, commit=folder.name)
    except (HFValidationError, LocalEntryNotFoundError) as error:
        where = f"{constants.HF_HUB_CACHE}/models--{name.replace('/', '--')}"
        raise ModelError(f"{field}: {name} is neither a folder nor in {where}. {advice}") from error
    except ModelError as error:
        raise ModelError(f"{error}. {advice}") from error


def _inspect_folder(folder: Path, field: str, *, commit: str = "") -> Found:
    if adapters := _has(folder, ADAPTERS):
        weights, base = [folder / ADAPTERS, folder / ADAPTER_WEIGHTS], _read_base(folder)
    else:
        index = read_json(folder / INDEX).get("weight_map") if _has(folder, INDEX) else None
        shards = (
            [folder / name for name in sorted(set(map(str, index.values())))]
            if isinstance(index, dict)
            else []
        )
        weights, base = (
            [folder / CONFIG, *([folder / INDEX, *shards] if shards else [folder / WHOLE])],
            ("", ""),
        )
    own = [*weights, *(folder / name for name in (TUNED, SIZES, WEIGHTS) if _has(folder, name))]
    if missing := next((path.name for path in own if not path.is_file()), ""):
        pickled = any(folder.glob("*.bin")) or any(folder.glob("*.pt*"))
        only = ", only pickled weights: convert them to safetensors" if pickled else ""
        raise ModelError(f"{field}: {folder} holds no {missing}{only}")
    if not adapters and not any(_has(folder, name) for name in PROCESSOR):
        raise ModelError(f"{field}: {folder} holds no image processor ({' or '.join(PROCESSOR)})")
    read = sorted(path for path in folder.iterdir() if path.suffix in READ and path.is_file())
    beside = [path for path in read if path.name not in NOT_READ]
    revision = commit or identify_files(list(dict.fromkeys([*own, *beside])))
    return Found(folder=folder, revision=revision, identity=revision, base=base)


def _has(folder: Path, name: str) -> bool:
    return (folder / name).is_file()


def _read_base(folder: Path) -> tuple[str, str]:
    if _has(folder, CONFIG):
        raise ModelError(
            f"{NAME}: {folder} holds a model ({CONFIG}) and adapters ({ADAPTERS}): move one of them"
        )
    content = read_json(folder / ADAPTERS)
    base, revision = content.get("base_model_name_or_path"), content.get("revision") or ""
    if not isinstance(base, str) or not base or not isinstance(revision, str):
        raise ModelError(f"{NAME}: {folder / ADAPTERS} does not name the base model")
    return base, "" if is_local(base) else revision


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a model's JSON file."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ValueError("too large")
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise TypeError("not a JSON object")
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ModelError(f"{NAME}: {path} cannot be read: {error}") from error
    return content


def find_base(folder: Path) -> Found | None:
    """Return the base model of the adapters in a folder; ``None`` for a whole model."""
    return _find(*_read_base(folder), NAME) if _has(folder, ADAPTERS) else None


def find_module(folder: Path) -> Path | None:
    """Return the folder of the differential perception module: the model's, or its base's; ``None``: no module."""
    if _has(folder, SIZES):
        return folder
    base = find_base(folder)
    return base.folder if base and _has(base.folder, SIZES) else None


def read_module(folder: Path) -> DifferentialConfig:
    """Return the settings of a folder's differential perception module."""
    content = read_json(folder / SIZES)
    try:
        own = {name: content[name] for name in DifferentialConfig.model_fields if name != "enabled"}
        return DifferentialConfig.model_validate({"enabled": True} | own)
    except (KeyError, ValueError) as error:
        raise ModelError(
            f"{NAME}: {folder / SIZES}: invalid settings of a module: {error}"
        ) from error
