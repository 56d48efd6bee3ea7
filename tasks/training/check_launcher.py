"""Refuse what a launcher asks for and cannot have, before anything is loaded.

Reads what ``accelerate launch`` says to its processes by environment variables; needs accelerate where one of them is
set.
"""

import os

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.training import TrainConfig

FSDP, VERSION, KIND, DEEPSPEED = (
    "ACCELERATE_USE_FSDP",
    "FSDP_VERSION",
    "FSDP_STATE_DICT_TYPE",
    "ACCELERATE_USE_DEEPSPEED",
)


def check_launcher(config: TrainConfig) -> None:
    """Look at the way in which the processes were started; they have to have joined.

    Raises:
        ConfigError: FSDP's first version, which does not write adapters, or checkpoints in one piece, from which the
            second leaves some adapters out (those of Qwen2-VL's projector); weights of kinds that are kept whole; or
            weights are to be spread over processes that have no GPU, where accelerate would keep them whole without a
            word.
    """
    if not (_is_on(FSDP) or _is_on(DEEPSPEED)):
        return
    if _is_on(FSDP) and (version := os.environ.get(VERSION, "1")) != "2":
        raise ConfigError(f"accelerate: fsdp_version is {version}; give --fsdp_version 2")
    if _is_on(FSDP) and os.environ.get(KIND) == "FULL_STATE_DICT" and config.model.tuning == "lora":
        raise ConfigError(
            "accelerate: fsdp_state_dict_type is FULL_STATE_DICT, whose checkpoints lack some adapters; give "
            "--fsdp_state_dict_type SHARDED_STATE_DICT"
        )
    model = config.model
    beside = model.tuning == "lora" and model.train_vision and model.vision_tuning == "full"
    if model.differential.enabled or beside or config.optimiser.vision_learning_rate:
        raise ConfigError(
            "accelerate: differential perception, weights trained in full beside adapters, and a rate of the tower's "
            "own are not spread over processes by FSDP or DeepSpeed; start it with: torchrun -m pairwright train ..."
        )
    from accelerate import PartialState
    from accelerate.utils import DistributedType

    if PartialState().distributed_type in (DistributedType.MULTI_CPU, DistributedType.NO):
        name = "use_fsdp" if _is_on(FSDP) else "use_deepspeed"
        raise ConfigError(
            f"accelerate: {name}: weights are spread over several GPUs, and here are none, or one process only. Start "
            "it without that, on CPUs with: torchrun --nproc-per-node 2 -m pairwright train ..."
        )


def _is_on(name: str) -> bool:
    return os.environ.get(name, "false").lower() == "true"
