"""Say what helps where a training does not fit the memory of its device."""

from collections.abc import Generator
from contextlib import contextmanager

from pairwright.schemas.errors import TrainingError
from pairwright.schemas.training import NAMC, TrainConfig
from pairwright.tasks.models.batches import is_out_of_memory
from pairwright.tasks.training.runs import Run


@contextmanager
def fitting(config: TrainConfig, run: Run) -> Generator[None]:
    """Turn what PyTorch says of memory that does not suffice into which settings need less.

    Raises:
        TrainingError: the memory did not suffice.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        first = str(error).strip().partition("\n")[0] or type(error).__name__
        kept = f"; {run.folder} has a checkpoint and keeps its settings: give another --name" if run.latest() else ""
        raise TrainingError(f"out of memory: {first}. Less is needed with {_advise(config)}{kept}") from error


def _advise(config: TrainConfig) -> str:
    """Name the settings that help, first those that change nothing of what is learnt."""
    optimiser, found = config.optimiser, list[str]()
    half, odd = divmod(optimiser.per_device_train_batch_size, 2)
    size, twice = "optimiser.per_device_train_batch_size", 2 * optimiser.gradient_accumulation_steps
    if half:
        same = " (as many rows to a step)" if not odd else ""
        found.append(f"--set {size}={half} --set optimiser.gradient_accumulation_steps={twice}{same}")
    if config.objective != NAMC:
        found += [] if optimiser.gradient_checkpointing else ["--set optimiser.gradient_checkpointing=true"]
        found += [] if config.model.tuning == "lora" else ["--set model.tuning=lora"]
        found.append(f"smaller images (--set model.max_pixels={config.model.max_pixels // 2})")
    return ", or ".join(found) or "a smaller model alone: there is one row at a time already"
