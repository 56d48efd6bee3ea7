"""Give one of our trainings ADPO's retriever, as it is with 5,000 rows whose images and texts have CLIP's vectors.

The vectors are random; what is computed is what would be, but for its outcome.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from pairwright.schemas.rows import PreferenceRow
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.training.losses.objectives import OBJECTIVES
from pairwright.tasks.training.retriever.adversary import make_adversary
from pairwright.tasks.training.retriever.material import Features, Material
from pairwright.tasks.training.retriever.pool import Entry, make_pool
from tests.bench.train_rows import make_texts

POOL, NUMBERS = 5000, 768


def give_adversary(trainer: Any, rows: list[PreferenceRow], config: TrainConfig) -> None:
    """Make a DPO training one of ADPO: its loss, and negatives from a retriever that learns."""
    others = [_entry(f"other {place}", text) for place, text in enumerate(make_texts(POOL - len(rows)))]
    entries = (*(_entry(row.key, row.chosen) for row in rows), *others)
    pool = make_pool(entries)
    rng = np.random.default_rng(0)
    shown = np.arange(2 * len(entries)).reshape(-1, 2)
    features = Features(
        images=(_vectors(2 * len(entries), rng),),
        shown=shown,
        texts=_vectors(len(pool.texts), rng),
        of_texts=np.arange(len(pool.texts)),
        made_by="chance",
    )
    places = {entry.key: place for place, entry in enumerate(entries)}
    material = Material(entries=entries, pool=pool, places=places, features=features, truth=None)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def tokenize(text: str) -> tuple[int, ...]:
        return trainer.data_collator.answers([text], 0)[0].ids

    adversary = make_adversary(material, config, tokenize=tokenize, device=device)
    trainer.setting = replace(trainer.setting, config=config, goal=OBJECTIVES["adpo"], adversary=adversary)


def _entry(key: str, text: str) -> Entry:
    return Entry(key=key, pair=key, chosen=text, images=(f"{key} a", f"{key} b"), in_pool=True, no_change=False)


def _vectors(count: int, rng: np.random.Generator) -> Any:
    found = rng.standard_normal((count, NUMBERS), dtype=np.float32)
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float16)
