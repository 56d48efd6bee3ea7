"""Have transformers' Trainer write checkpoints that are whole or not there, and go on from them.

What a run keeps beside the Trainer's own files: the means that are not logged yet, the adversary, a module that is
attached to the model. What the Trainer would but warn of when it loads is refused.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any, cast

from safetensors import SafetensorError
from transformers import PreTrainedModel, Trainer, TrainerState
from typing_extensions import override

from pairwright.schemas.differential import NAME as MODULE
from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.batches import is_out_of_memory
from pairwright.tasks.training.metrics import Window
from pairwright.tasks.training.runs import SAVING, STEP
from pairwright.tasks.training.save_checkpoints import Saving, advise, reading
from pairwright.tasks.training.trainer_setting import Setting
from pairwright.tasks.training.tuned_weights import restore_beside, save_beside, without_module

WINDOW, STATE = "window.json", "trainer_state.json"


class CheckpointedTrainer(Trainer):
    """Be transformers' Trainer with the checkpoints of a run."""

    def __init__(self, setting: Setting, **words: Any) -> None:
        super().__init__(**words)
        self.setting = setting
        self.window = Window()

    @override
    def _get_output_dir(self, trial: Any) -> str:
        """Return where a checkpoint is written before it gets its name."""
        return str(self.setting.run.folder / SAVING)

    @override
    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write a checkpoint under another name and rename it.

        Raises:
            TrainingError: the disk refuses; the checkpoints before are as they were.
        """
        staged, save = Path(self._get_output_dir(trial)) / f"{STEP}{self.state.global_step}", super()._save_checkpoint
        first = self.is_world_process_zero()
        saving = Saving(self.setting.run, staged.name)
        saving.agree(lambda: saving.begin() if first else None)
        saving.agree(lambda: save(model, trial))
        saving.agree(lambda: self._save_own(staged) if first else None)
        saving.agree(lambda: saving.publish(self.setting.config.output.save_total_limit) if first else None)

    def _save_own(self, folder: Path) -> None:
        (folder / WINDOW).write_text(json.dumps(self.window.look()))
        if self.setting.adversary:
            self.setting.adversary.save(folder)
        self.setting.metrics.write()

    def restore(self, folder: Path) -> None:
        """Read what is ours of a checkpoint.

        Raises:
            ModelError: it cannot be read.
        """
        with reading(folder / WINDOW):
            if self.is_world_process_zero():
                self.window.join([json.loads((folder / WINDOW).read_text())])
        with reading(folder / STATE):
            TrainerState.load_from_json(str(folder / STATE))
        if self.setting.adversary:
            self.setting.adversary.load(folder)

    @override
    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        try:
            super()._load_from_checkpoint(resume_from_checkpoint, model)
        except (RuntimeError, ValueError, KeyError, OSError, SafetensorError) as error:
            if is_out_of_memory(error):
                raise
            first = str(error).strip().partition("\n")[0]
            folder = Path(resume_from_checkpoint)
            raise ModelError(f"{folder}: is no checkpoint of this run's model: {first}. {advise(folder)}") from error
        restore_beside(self.model, Path(resume_from_checkpoint))

    @override
    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with reading(Path(checkpoint or "")):
            super()._load_optimizer_and_scheduler(checkpoint)

    @override
    def _load_rng_state(self, checkpoint: str | None) -> None:
        with reading(Path(checkpoint or "")):
            super()._load_rng_state(checkpoint)

    @override
    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the finished model, or a checkpoint's, which FSDP and DeepSpeed write in parts of their own."""
        if not (_internal_call and self.is_sharded):
            super().save_model(output_dir, _internal_call)

    @property
    def is_sharded(self) -> bool:
        """Say whether weights, or what the optimiser knows of them, are spread over the ranks."""
        return self.is_fsdp_enabled or self.is_deepspeed_enabled

    @override
    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """Write the model; in a checkpoint, under the names of its own weights, by which the Trainer loads them.

        A finished model has the published names, which differ from them in some families (Qwen2-VL). Where its weights
        were gathered, tied ones share no memory any more: each is written once.
        """
        model, finished = cast("Any", self.model), SAVING not in str(output_dir)
        if finished and hasattr(model, MODULE) and isinstance(model, PreTrainedModel):
            state_dict = without_module(state_dict or model.state_dict())
        self._write(output_dir, state_dict, published=finished)
        if self.args.should_save:
            save_beside(model, Path(str(output_dir)), finished=finished)

    def _write(self, output_dir: str | None, state_dict: dict[str, Any] | None, *, published: bool) -> None:
        model = cast("Any", self.model)
        if state_dict is not None and isinstance(model, PreTrainedModel):
            tied = model.all_tied_weights_keys
            state_dict = {name: weight for name, weight in state_dict.items() if name not in tied}
        if published or not isinstance(model, PreTrainedModel):
            super()._save(output_dir, state_dict)
            return
        vars(model)["save_pretrained"] = partial(model.save_pretrained, save_original_format=False)
        try:
            super()._save(output_dir, state_dict)
        finally:
            del vars(model)["save_pretrained"]

    @override
    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Refuse a checkpoint of another model, which the Trainer would but warn of."""
        weights, missing = cast("Any", self.model).state_dict(), set(load_result.missing_keys)
        loaded = {weights[key].data_ptr() for key in weights.keys() - missing}
        lacking = [key for key in load_result.missing_keys if weights[key].data_ptr() not in loaded]  # others are tied
        if odd := [*lacking, *load_result.unexpected_keys]:
            raise ValueError(f"{odd[0]} is not in both")
