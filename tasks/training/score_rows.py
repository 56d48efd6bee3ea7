"""Score the answers of preferences with a training's initial model.

Reads ``PreferenceRow`` with images, writes ``ReferenceRow``. The table saves a training the second copy of the model;
its fingerprint covers everything that changes the scores. One process per device; on a GPU, helpers decode and tokenise
ahead.
"""

import math
import os
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch

from pairwright.schemas.rows import Dropped, PreferenceRow, ReferenceRow, make_key
from pairwright.schemas.training import ModelConfig, Number, ScoringConfig, TrainConfig
from pairwright.tasks.models.devices import choose_device, count_gpus, release
from pairwright.tasks.models.prepare_ahead import run_ahead
from pairwright.tasks.store.pool import PLACE
from pairwright.tasks.store.stage import Stage
from pairwright.tasks.training.collate import Batch, Collator, Loaded, load_row
from pairwright.tasks.training.find_model import Found
from pairwright.tasks.training.freeze_rows import Needs, Refused
from pairwright.tasks.training.load_model import (
    PRECISIONS,
    choose_precision,
    choose_storage,
    computing,
    freeze_model,
    load_model,
    load_processor,
)
from pairwright.tasks.training.losses import TEXTS, measures_of
from pairwright.tasks.training.pack_answers import pack_answers
from pairwright.tasks.training.score_answers import packs_well, score_answers

AHEAD = 4  # batches prepared ahead of the device
NUMBERS: dict[torch.dtype, Number] = {precision: name for name, precision in PRECISIONS.items()}


def scoring_config(found: Found, config: TrainConfig) -> ScoringConfig:
    """Return the scoring settings under which the initial policy scores the same."""
    needs = measures_of(config)  # a superset of the training's
    return ScoringConfig(
        folder=str(found.folder),
        model=found.identity,
        weights=NUMBERS[choose_storage(config)],
        compute=NUMBERS[choose_precision(config)],
        attn_implementation=config.model.attn_implementation,
        load_in_4bit=config.model.load_in_4bit,
        shared_prompt=config.model.shared_prompt,
        max_pixels=config.model.max_pixels,
        max_length=config.model.max_length,
        texts=needs.texts,
        images=needs.images,
        beside=needs.beside,
        batch=config.optimiser.per_device_train_batch_size,
    )


def score_rows(rows: Sequence[PreferenceRow], config: ScoringConfig) -> Iterator[ReferenceRow | Dropped]:
    """Yield the model's scores of each row's answers; rows that cannot be trained on are dropped."""
    if not rows:
        return
    model = _open_model(config.model_dump_json())
    apart = _keeps_apart(model, rows, config)
    chunks = [rows[start : start + config.batch] for start in range(0, len(rows), config.batch)]
    work = partial(make_batch, config=config, apart=apart)
    for batch in run_ahead(work, chunks, most=AHEAD) if count_gpus() else map(work, chunks):
        yield from _score(batch, model, config)


def _keeps_apart(model: Any, rows: Sequence[PreferenceRow], config: ScoringConfig) -> bool:
    if config.shared_prompt != "auto":
        return config.shared_prompt == "never"
    items, dtype = _load(rows[: 2 * config.batch], config), PRECISIONS[config.compute]
    with computing(model.device, dtype):
        return bool(packs_well(model, _collator(config.model_dump_json(), apart=False), items, dtype=dtype))


def _score(batch: Batch, model: Any, config: ScoringConfig) -> Iterator[ReferenceRow | Dropped]:
    for refused in batch.refused:
        yield Dropped(source_key=refused.key, reason=refused.reason, detail=refused.detail)
    if not batch.prompts:
        return
    dtype = PRECISIONS[config.compute]
    with torch.no_grad(), computing(model.device, dtype):
        packed = pack_answers(batch.to(model.device), model, width=TEXTS + config.texts, dtype=dtype)
        scored = score_answers(model, packed)
    for key, logps, tokens in zip(batch.keys, scored.logps.tolist(), scored.tokens.tolist(), strict=True):
        if not all(map(math.isfinite, logps)):
            yield Dropped(source_key=key, reason="the model gives it no finite log-probability", detail=f"{logps}")
        else:
            own = make_key("reference", key)
            yield ReferenceRow(key=own, source_key=key, subject=key, logps=tuple(logps), tokens=tuple(tokens))


@lru_cache(maxsize=1)
def _open_model(settings: str) -> Any:
    config = ScoringConfig.model_validate_json(settings)
    own = ModelConfig.model_validate(config.model_dump(include={"attn_implementation", "load_in_4bit"}))
    model = load_model(Path(config.folder), own, dtype=PRECISIONS[config.weights])
    device = choose_device()
    if device.type == "cpu" and PLACE in os.environ:  # the stage's own process has one thread
        torch.set_num_threads(os.cpu_count() or 1)
    return freeze_model(model, PRECISIONS[config.compute]).to(device)


def release_scorer() -> None:
    """Free the model's memory, where the stage ran in this process."""
    release(_open_model, _collator)


def make_batch(rows: Sequence[PreferenceRow], *, config: ScoringConfig, apart: bool) -> Batch:
    """Return rows as a batch; runs in a helper, too."""
    return _collator(config.model_dump_json(), apart=apart)(_load(rows, config))["batch"]


def _load(rows: Sequence[PreferenceRow], config: ScoringConfig) -> list[Loaded | Refused]:
    needs = Needs(texts=config.texts, images=config.images, beside=config.beside)
    return [load_row(row, needs, config.max_pixels) for row in rows]


@lru_cache(maxsize=2)
def _collator(settings: str, *, apart: bool) -> Collator:
    config = ScoringConfig.model_validate_json(settings)
    return Collator(load_processor(Path(config.folder)), config.max_length, apart=apart)


def count_processes(_config: ScoringConfig) -> int:
    """Return how many processes load the model: one per GPU, at least one."""
    return max(1, count_gpus())


STAGE = Stage(
    name="reference",
    version=1,
    group="training",
    reads={"preferences": PreferenceRow},
    writes=ReferenceRow,
    function=score_rows,
    config="reference",
    processes=count_processes,
    without=("removal_scores",),
    rows_per_shard=256,
)
