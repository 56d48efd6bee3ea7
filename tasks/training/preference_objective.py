"""Objectives that train a vision-language model: SFT, and preferences by DPO, mDPO, AdaViP, ADPO.

Needs no PyTorch before ``fit``.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from pairwright.schemas.training import STAND_INS, TINY, OptimiserConfig, TrainConfig
from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.training.check_environment import (
    can_shard,
    check_launcher,
    check_libraries,
    count_launched,
    explain_out_of_memory,
)
from pairwright.tasks.training.estimate_memory import check_memory, need_less
from pairwright.tasks.training.find_start import find_start
from pairwright.tasks.training.freeze_dataset import freeze_dataset, open_training_table
from pairwright.tasks.training.losses import needs_of
from pairwright.tasks.training.mix_datasets import add_conversations, mix_datasets
from pairwright.tasks.training.objective import (
    DatasetTables,
    Ended,
    FrozenData,
    Job,
    Start,
    read_section,
)
from pairwright.tasks.training.retriever.prepare_retriever import prepare_retriever
from pairwright.tasks.training.runs import Run

PAPER_BATCH = 256  # rows of a step over all devices (paper 002, Table 10)


class PreferenceObjective:
    """Training of a vision-language model by SFT or a preference loss."""

    def defaults(self, values: Mapping[str, Any], start: TrainConfig | None) -> dict[str, Any]:
        """Return the defaults of stand-ins and of differential perception."""
        model = read_section(values, "model")
        name = model.get("name") or (start.model.name if start else TINY)
        differential = read_section(values, "model", "differential").get("enabled") is True
        defaults: dict[str, Any] = {}
        if name in STAND_INS:
            defaults = _stand_in_defaults(values)
        elif differential:
            defaults = _differential_defaults(values)
        if model.get("train_vision") is False:
            defaults.pop("optimiser.vision_learning_rate", None)
        if differential:
            defaults["output.write_answers"] = True
        return defaults

    def check(self, config: TrainConfig) -> None:
        """Check the launcher, and the libraries of optimiser, trackers and 4-bit weights."""
        check_launcher(config, can_shard=can_shard(config))
        check_libraries(config)

    def resolve_start(self, config: TrainConfig, run: Run, tables: DatasetTables) -> Start:
        """Find the start model, and check that training it fits into the GPUs' memory."""
        model, resolved = find_start(config, run, tables)
        if count_gpus() and not run.is_finished:
            check_memory(model.folder, resolved)
        record = {"folder": str(model.folder), "revision": model.revision}
        return Start(folder=model.folder, config=resolved, record=record)

    def freeze(self, config: TrainConfig, run: Run, tables: DatasetTables) -> FrozenData:
        """Freeze the rows, further data included, and for ADPO the retriever's data."""
        needs = needs_of(config)
        extra = add_conversations(tables, config)
        with open_training_table(tables, config, extra) as table:
            frozen = freeze_dataset(config, run, table, tables, needs=needs)
            held_out = frozenset[str]()
            if config.data.mix:
                held_out = table.find_held_out(config.data.split)
        if config.objective == "adpo":
            prepare_retriever(config, run, tables)
        needs = replace(needs, held_out=held_out, accepted="")
        mix, refused = mix_datasets(config, run, tables, needs=needs)
        return replace(frozen, mix=mix, refused=[*frozen.refused, *refused])

    def restore(self, config: TrainConfig, run: Run, tables: DatasetTables) -> None:
        """Do nothing: the rows stay as long as the run."""
        del config, run, tables

    def fit(self, job: Job) -> Ended:
        """Train with transformers' Trainer."""
        from pairwright.tasks.training.fit_preferences import fit_preferences

        with explain_out_of_memory(job.run, partial(need_less, job.config)):
            return fit_preferences(job)

    def describe_model(self, config: TrainConfig) -> str:
        """Return the start model's name."""
        differential = " differential" if config.model.differential.enabled else ""
        return f"{config.model.name}{differential}"

    def can_be_served(self, config: TrainConfig) -> bool:
        """Return whether the model is merged, and of an architecture that vLLM knows."""
        return config.output.merge_adapters and not config.model.differential.enabled


def _stand_in_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return defaults (ours) for random weights, which need not be preserved."""
    is_sft = values["objective"] == "sft"
    is_tuned = bool(values.get("start"))
    return {
        "model.tuning": "full",
        "model.train_vision": True,
        "output.logging_steps": 5,
        "output.eval_steps": 20,
        "optimiser.learning_rate": 2e-3 if is_sft and not is_tuned else 3e-4,
        "optimiser.num_train_epochs": 10 if is_sft else 5,
        "optimiser.per_device_train_batch_size": 8,
    }


def _differential_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the published settings of differential perception (paper 002, Table 10)."""
    rows = read_section(values, "optimiser").get("per_device_train_batch_size")
    if not isinstance(rows, int) or rows <= 0:
        rows = OptimiserConfig().per_device_train_batch_size
    return {
        "model.lora.rank": 128,
        "model.lora.alpha": 256,
        "model.train_vision": True,
        "model.vision_tuning": "full",
        "optimiser.learning_rate": 1e-5,
        "optimiser.vision_learning_rate": 2e-6,
        "optimiser.gradient_accumulation_steps": max(1, PAPER_BATCH // (rows * count_launched())),
    }
