"""Check the launcher, the packages and the memory that a training needs, before anything is loaded.

Needs no PyTorch, unless processes were launched to share the weights.
"""

import os
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib.util import find_spec

from pairwright.schemas.errors import ConfigError, TrainingError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.models.adaptive_batches import is_out_of_memory
from pairwright.tasks.training.estimate_memory import is_sharded
from pairwright.tasks.training.find_model import require_bits
from pairwright.tasks.training.runs import Run

BITS = re.compile(r"(?<!torch_)8bit|bnb|paged|lion|ademamix")
"""Names of bitsandbytes' optimisers."""
TORCHRUN = "start it with: torchrun --nproc-per-node 2 -m pairwright train ..."


def count_launched() -> int:
    """Return the number of processes that the launcher has started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def can_shard(config: TrainConfig) -> bool:
    """Return whether FSDP can share the weights of a vision-language model."""
    return not config.model.load_in_4bit and not BITS.search(config.optimiser.optim)


def check_launcher(config: TrainConfig, *, can_shard: bool) -> None:
    """Check how the processes were launched; call after ``join_ranks``."""
    if os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true":
        raise ConfigError(
            "accelerate: DeepSpeed is not supported; use FSDP (--use_fsdp --fsdp_version 2), "
            f"or {TORCHRUN}"
        )
    if not is_sharded():
        return
    if not can_shard:
        raise ConfigError(
            "accelerate: FSDP does not support NAMC, 4-bit weights, bitsandbytes' optimisers; "
            f"{TORCHRUN}"
        )
    version = os.environ.get("FSDP_VERSION", "1")
    if version != "2":
        raise ConfigError(f"accelerate: fsdp_version is {version}; give --fsdp_version 2")
    state_dict_type = os.environ.get("FSDP_STATE_DICT_TYPE")
    if state_dict_type == "FULL_STATE_DICT" and config.model.tuning == "lora":
        raise ConfigError(
            "accelerate: some adapters would be lost; "
            "give --fsdp_state_dict_type SHARDED_STATE_DICT"
        )
    from accelerate import PartialState
    from accelerate.utils import DistributedType

    single = (DistributedType.MULTI_CPU, DistributedType.NO)
    if PartialState().distributed_type in single:
        raise ConfigError(f"accelerate: use_fsdp needs several GPUs and processes; {TORCHRUN}")


def check_libraries(config: TrainConfig) -> None:
    """Refuse unknown optimisers, and optimisers and trackers whose library is missing."""
    from transformers.training_args import OptimizerNames

    for tracker in config.output.report_to:
        if find_spec(tracker) is None:
            raise ConfigError(
                f"output.report_to: {tracker} is not installed here: "
                f"python -m pip install {tracker}"
            )
    name = config.optimiser.optim
    known = [optimiser.value for optimiser in OptimizerNames]
    if name not in known:
        raise ConfigError(
            f"optimiser.optim: unknown optimiser {name!r}; choose from {', '.join(known)}"
        )
    if BITS.search(name):
        require_bits(f"optimiser.optim: {name}")
    if config.model.load_in_4bit:
        require_bits("model.load_in_4bit")


@contextmanager
def explain_out_of_memory(run: Run, need_less: Callable[[], str]) -> Generator[None]:
    """Turn PyTorch's out-of-memory errors into ``TrainingError`` with settings that need less."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        first_line = str(error).strip().partition("\n")[0]  # PyTorch appends frames
        message = f"out of memory: {first_line}. Try {need_less()}"
        if run.latest():
            message += (
                f"; {run.folder} has a checkpoint and keeps its settings: give another --name"
            )
        raise TrainingError(message) from error
