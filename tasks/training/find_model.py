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
from pairwright.tasks.models.weights import LOCAL, identify_files, is_model_folder
from pairwright.tasks.store.manifest import MANIFEST, refuse_damage

NAME = "model.name"
PACKAGES = ("torch", "transformers", "peft", "accelerate", "huggingface_hub", "safetensors")
INSTALL = "python -m pip install -c constraints.txt -e '.[cpu,train]'"
INSTALL_BITS = "python -m pip install -c constraints.txt -e '.[cpu,train,qlora]'"
CONFIG = "config.json"
WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
ADAPTERS = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
TUNED = "tuned.safetensors"  # weights trained in full in addition to adapters
# A vision-language model has one of them.
PROCESSOR = ("preprocessor_config.json", "processor_config.json")
READ = (".json", ".jinja", ".txt", ".model")
"""Suffixes of the other files that loaders read, except ``NOT_READ``."""
NOT_READ = ("generation_config.json", MANIFEST)
MOST_BYTES = 64 << 20  # maximum size of a JSON file, against hostile ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Local files of a model, and its identity."""

    folder: Path
    # a Hub commit, or the hash of all loaded files, the base model of adapters included
    revision: str
    identity: str  # the revision; for adapters combined with that of their base model
    base: tuple[str, str] = ("", "")  # for adapters: name and commit, if given, of their base model


def require_packages(what: str = "training") -> None:
    """Raise ``ModelError`` where a package that ``what`` needs is missing."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ModelError(f"{what} needs {', '.join(missing)}, not installed here: {INSTALL}")


def require_bits(field: str) -> None:
    """Refuse a setting that needs bitsandbytes where it is missing."""
    if importlib.util.find_spec("bitsandbytes") is None:
        raise ConfigError(f"{field}: needs bitsandbytes, not installed here: {INSTALL_BITS}")


def find_model(
    name: str,
    revision: str = "",
    *,
    field: str = NAME,
) -> Found:
    """Return the files of a model, a folder or a name on the Hub.

    ``field`` is the setting that names it. ``revision``: the required commit, or hash of a folder's
    files; empty: any.
    """
    require_packages()
    model = _find(name, revision, field)
    is_folder = is_model_folder(name)
    if model.base[0]:
        base = _find(*model.base, field)
        if base.base[0]:
            raise ModelError(
                f"{field}: {model.folder} holds adapters, and so does its base {base.folder}: "
                "merge one"
            )
        identity = LOCAL + make_key(model.revision, base.revision)
        model_revision = identity if is_folder else model.revision
        model = replace(model, identity=identity, revision=model_revision)
    if is_folder and revision and model.revision != revision:
        raise ModelError(
            f"{field}: {model.folder} has changed since the run began ({model.revision}, not "
            f"{revision}): restore it, or start over with another --name"
        )
    return model


def _find(
    name: str,
    revision: str,
    field: str,
) -> Found:
    if is_model_folder(name):
        folder = Path(name).expanduser().absolute()
        refuse_damage(folder, field=field)
        return _inspect_folder(folder, field)
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    advice = f"Fetch it with: hf download {name}"
    if revision:
        advice += f" --revision {revision}"
    try:
        folder = Path(snapshot_download(name, revision=revision or None, local_files_only=True))
        return _inspect_folder(folder, field, commit=folder.name)
    except (HFValidationError, LocalEntryNotFoundError) as error:
        cache = f"{constants.HF_HUB_CACHE}/models--{name.replace('/', '--')}"
        raise ModelError(f"{field}: {name} is neither a folder nor in {cache}. {advice}") from error
    except ModelError as error:
        raise ModelError(f"{error}. {advice}") from error


def _inspect_folder(
    folder: Path,
    field: str,
    *,
    commit: str = "",
) -> Found:
    has_adapters = _has(folder, ADAPTERS)
    base = _read_base(folder) if has_adapters else ("", "")
    required = _list_weights(folder)
    required += [folder / name for name in (TUNED, SIZES, WEIGHTS) if _has(folder, name)]
    _refuse_missing(folder, required, field)
    if not has_adapters and not any(_has(folder, name) for name in PROCESSOR):
        raise ModelError(f"{field}: {folder} holds no image processor ({' or '.join(PROCESSOR)})")
    revision = commit
    if not revision:
        files = [*required, *_list_settings(folder)]
        revision = identify_files(list(dict.fromkeys(files)))
    return Found(
        folder=folder,
        revision=revision,
        identity=revision,
        base=base,
    )


def _list_weights(folder: Path) -> list[Path]:
    """Return the files of the weights and the configuration that describes them."""
    if _has(folder, ADAPTERS):
        return [folder / ADAPTERS, folder / ADAPTER_WEIGHTS]
    index: Any = read_json(folder / INDEX).get("weight_map") if _has(folder, INDEX) else None
    if not isinstance(index, dict) or not index:
        return [folder / CONFIG, folder / WHOLE]
    names = sorted(set(map(str, index.values())))
    return [folder / CONFIG, folder / INDEX, *(folder / name for name in names)]


def _refuse_missing(
    folder: Path,
    required: list[Path],
    field: str,
) -> None:
    missing = [path.name for path in required if not path.is_file()]
    if not missing:
        return
    advice = ""
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt*")):
        advice = ", only pickled weights: convert them to safetensors"
    raise ModelError(f"{field}: {folder} holds no {missing[0]}{advice}")


def _list_settings(folder: Path) -> list[Path]:
    """Return the files with settings, templates and vocabularies that loaders read."""
    files = sorted(path for path in folder.iterdir() if path.suffix in READ and path.is_file())
    return [path for path in files if path.name not in NOT_READ]


def _has(folder: Path, name: str) -> bool:
    return (folder / name).is_file()


def _read_base(folder: Path) -> tuple[str, str]:
    if _has(folder, CONFIG):
        raise ModelError(
            f"{NAME}: {folder} holds a model ({CONFIG}) and adapters ({ADAPTERS}): move one of them"
        )
    content = read_json(folder / ADAPTERS)
    base = content.get("base_model_name_or_path")
    revision = content.get("revision") or ""
    if not isinstance(base, str) or not base or not isinstance(revision, str):
        raise ModelError(f"{NAME}: {folder / ADAPTERS} does not name the base model")
    return base, "" if is_model_folder(base) else revision


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
    """Return the folder of a model's differential perception module.

    It is the model's or its base's; ``None``: no module.
    """
    if _has(folder, SIZES):
        return folder
    base = find_base(folder)
    if base and _has(base.folder, SIZES):
        return base.folder
    return None


def read_module(folder: Path) -> DifferentialConfig:
    """Return the settings of a folder's differential perception module."""
    content = read_json(folder / SIZES)
    settings: dict[str, Any] = {"enabled": True}
    try:
        for name in DifferentialConfig.model_fields:
            if name != "enabled":
                settings[name] = content[name]
        return DifferentialConfig.model_validate(settings)
    except (KeyError, ValueError) as error:
        raise ModelError(
            f"{NAME}: {folder / SIZES}: invalid settings of a module: {error}"
        ) from error
