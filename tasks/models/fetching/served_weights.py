"""Find out which files of a repository vLLM loads, so that they can be fetched ahead of it.

Asks the Hub for the repository's list, or reads the commit's folder in its local cache. Needs huggingface_hub.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from pairwright.schemas.errors import ModelError
from pairwright.schemas.served import ChatConfig
from pairwright.tasks.models.weights import HubFiles

BESIDE = (".json", ".txt", ".model", ".jinja", ".tiktoken")
INDEX = "model.safetensors.index.json"


def is_on_hub(chat: ChatConfig) -> bool:
    """Say whether a model is one of the Hub's: neither a local folder nor a server's own."""
    return (
        bool(chat.launch and chat.model)
        and not chat.model.startswith((".", "/", "~"))
        and not Path(chat.model).exists()
    )


def list_on_hub(chat: ChatConfig, field: str) -> tuple[HubFiles, int]:
    """Return the files that vLLM loads of a model, and their size in bytes.

    Raises:
        ModelError: the Hub does not answer, or not for this model.
    """
    from huggingface_hub import HfApi

    try:
        said = HfApi().model_info(chat.model, revision=chat.revision or None, files_metadata=True)
    except Exception as error:  # the Hub's client raises its own and httpx2's errors
        raise ModelError(f"{field}.model: {chat.model} cannot be listed on the Hub: {error}") from error
    sizes = {file.rfilename: file.size or 0 for file in said.siblings or []}
    files = _loaded(chat, field, list(sizes))
    return files, sum(sizes[name] for name in (*files.beside, *files.weights))


def list_here(chat: ChatConfig, field: str) -> HubFiles:
    """Return the files of a model whose list is in the local cache: what its index names, and what lies beside it.

    Raises:
        ModelError: nothing of it is here.
    """
    from huggingface_hub import constants, try_to_load_from_cache

    config = try_to_load_from_cache(chat.model, "config.json", revision=chat.revision or None)
    if not isinstance(config, str):
        where = Path(constants.HF_HUB_CACHE) / f"models--{chat.model.replace('/', '--')}"
        raise ModelError(
            f"{field}.model: {chat.model} is not on this machine: looked in {where}. Fetch it with `pairwright fetch "
            f"--served` and the same --profile and --set, or let vLLM fetch it: --set {field}.launch.download=true"
        )
    folder = Path(config).parent
    try:
        index = json.loads((folder / INDEX).read_bytes()) if (folder / INDEX).is_file() else {}
        indexed = sorted(set(index.get("weight_map", {}).values()))
    except (ValueError, AttributeError, TypeError) as error:
        raise ModelError(f"{field}.model: {folder / INDEX} is no index of weights: {error}") from error
    names = [file.name for file in folder.iterdir()]
    return _loaded(chat, field, [*names, *(name for name in indexed if name not in names)])


def _loaded(chat: ChatConfig, field: str, names: Sequence[str]) -> HubFiles:
    """Choose from a repository's names: safetensors where there are any, no weights in another form beside them."""
    top = sorted(name for name in names if "/" not in name)
    safe = [name for name in top if name.endswith(".safetensors") and not name.startswith("consolidated")]
    weights = safe or [name for name in top if name.startswith("pytorch_model") and name.endswith(".bin")]
    if not weights:
        raise ModelError(f"{field}.model: {chat.model} holds no weights that vLLM loads")
    others = [name for name in top if name.endswith(BESIDE)]
    return HubFiles(
        field=f"{field}.launch",
        repository=chat.model,
        revision=chat.revision,
        weights=(weights[0],),
        beside=(*others, *weights[1:]),
    )
