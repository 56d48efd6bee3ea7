"""Compare a model's needs under vLLM with the memory of this machine's GPUs, before anything starts.

Reads ``config.json`` and the index of the weights, from a folder or the Hub's local cache, and runs ``nvidia-smi``;
fetches nothing. vLLM refuses to start where the weights, its work space, and the key-value cache of one sequence of
``max_model_len`` tokens exceed its share of a GPU. Needs only the standard library and the Hub's client.
"""

import csv
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.writing import ChatConfig, LaunchConfig

GB = 1e9
MARGIN = 3 * 10**9  # bytes of each GPU for CUDA's context and graphs, activations of a full batch, and its images
ELEMENT = 2  # bytes of a number in the cache: vLLM computes in 16 bits, whatever the weights have
UNCHECKED = "memory not checked: "
CHANGING = {
    *(f"--{kind}-parallel-size" for kind in ("tensor", "data", "pipeline")),
    *("-tp", "-dp", "-pp", "-q", "--quantization", "--cpu-offload-gb", "--kv-cache-dtype", "--dtype"),
}
"""vLLM's flags that invalidate this estimate."""
INDEX = "model.safetensors.index.json"
ASK = ("nvidia-smi", "--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits")
ASK_SECONDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Sizes that determine a model's memory; ``weights`` in bytes."""

    weights: int
    layers: int
    kv_heads: int
    head_dim: int

    @classmethod
    def of(cls, config: Mapping[str, Any], weights: int) -> Self:
        """Return the needs given by ``config.json`` and the weights' size; ``ValueError`` for missing fields."""
        text: Mapping[str, Any] = config.get("text_config") or config
        dtype = text.get("dtype") or text.get("torch_dtype") or config.get("torch_dtype")
        try:
            heads = int(text["num_attention_heads"])
            return cls(
                weights=weights // 2 if dtype == "float32" else weights,
                layers=int(text["num_hidden_layers"]),
                kv_heads=int(text.get("num_key_value_heads") or heads),
                head_dim=int(text.get("head_dim") or int(text["hidden_size"]) // heads),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"config.json lacks the sizes of the cache ({error!r})") from error

    def cache(self, tokens: int, gpus: int = 1) -> int:
        """Return the bytes of the key-value cache on each GPU, which holds at least one head."""
        return 2 * self.layers * max(1, self.kv_heads // gpus) * self.head_dim * ELEMENT * tokens

    def on_each(self, tokens: int, gpus: int = 1) -> int:
        """Return the bytes needed on each of the GPUs that share the model."""
        return self.weights // gpus + self.cache(tokens, gpus) + MARGIN


def read_needs(chat: ChatConfig) -> Needs:
    """Return the needs of a local model; ``ValueError`` names what is unknown."""
    if changing := {flag.partition("=")[0] for flag in chat.launch.flags} & CHANGING:
        raise ValueError(f"launch.flags has {min(changing)}, which changes the estimate")
    folder = Path(chat.model).expanduser()
    if not folder.is_dir():
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(chat.model, "config.json", revision=chat.revision or None)
        folder = Path(found).parent if isinstance(found, str) else folder
    if not (folder / "config.json").is_file():
        raise ValueError(f"{chat.model} is not on this machine")
    return Needs.of(*read_model(folder))


def read_model(folder: Path) -> tuple[Mapping[str, Any], int]:
    """Return a model's ``config.json`` and the bytes of its weights; ``ValueError`` where they are unreadable."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
        if (folder / INDEX).is_file():
            weights = int(json.loads((folder / INDEX).read_bytes())["metadata"]["total_size"])
        else:
            weights = sum(path.stat().st_size for path in folder.glob("model*.safetensors"))
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"{folder}: invalid JSON ({error})") from error
    if not weights or not isinstance(config, Mapping):
        raise ValueError(f"{folder} has no safetensors weights")
    return cast("Mapping[str, Any]", config), weights


def gpu_memory() -> tuple[int, ...]:
    """Return the bytes of each GPU in ``CUDA_VISIBLE_DEVICES``, by default of all."""
    try:
        said = subprocess.run(ASK, capture_output=True, text=True, timeout=ASK_SECONDS, check=True).stdout  # noqa: S603
        rows = [(row[0].strip(), row[1].strip(), int(row[2]) << 20) for row in csv.reader(said.splitlines())]
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):  # no driver, or no number: "[N/A]"
        return ()
    names = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(index for index, _, _ in rows)).split(",")
    named = [name.strip() for name in names if name.strip()]
    return tuple(size for name in named for index, uuid, size in rows if name == index or uuid.startswith(name))


def divide(launch: LaunchConfig, gpus: Sequence[int]) -> tuple[int, int]:
    """Return how many GPUs share a model, and the number of copies: by default as many as there are GPUs for."""
    shared = launch.tensor_parallel
    return shared, launch.data_parallel or max(1, len(gpus) // shared)


def check_memory(chat: ChatConfig, field: str) -> str:
    """Return a model's needs in words, or (``UNCHECKED``) why they are unknown.

    Raises ``ConfigError`` where it does not fit.
    """
    gpus, launch = gpu_memory(), chat.launch
    if not gpus:
        return f"{UNCHECKED}nvidia-smi names no GPU"
    try:
        needs = read_needs(chat)
    except ValueError as unknown:
        return f"{UNCHECKED}{unknown}"
    shared, copies = divide(launch, gpus)
    if shared * copies > len(gpus):
        raise ConfigError(
            f"{field}.launch: tensor_parallel {shared} x data_parallel {copies} needs {shared * copies} GPUs, of "
            f"{len(gpus)}"
        )
    each, limit = needs.on_each(launch.max_model_len, shared), launch.gpu_memory_utilization * min(gpus)
    said = (
        f"{chat.model} needs {each / GB:.1f} GB of each of {shared} GPU{'s' * (shared > 1)} (weights "
        f"{needs.weights / shared / GB:.1f}, cache of {launch.max_model_len} tokens "
        f"{needs.cache(launch.max_model_len, shared) / GB:.1f}, {MARGIN / GB:.0f} overhead), of {limit / GB:.1f} "
        f"({launch.gpu_memory_utilization:g} of {min(gpus) / GB:.1f})"
    )
    if each <= limit:
        return said
    raise ConfigError(
        f"{field}: {said}. Lower {field}.launch.max_model_len, share it among GPUs ({field}.launch.tensor_parallel), "
        "or take a 4-bit checkpoint (AWQ or GPTQ) or a smaller model"
    )
