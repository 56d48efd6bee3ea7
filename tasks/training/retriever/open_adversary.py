"""Open the retriever of a run: what it knows was frozen when the run began.

Reads ``runs/NAME/retriever/``, and the frozen rows for CLIP4IDC's images. Needs PyTorch.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pairwright.schemas.encoders import ClipConfig
from pairwright.schemas.errors import StoreError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.images import decode_rgb
from pairwright.tasks.training.freeze_rows import FrozenRows
from pairwright.tasks.training.retriever.adversary import RetrieverAdversary, Tokenize, make_adversary
from pairwright.tasks.training.retriever.average import make_average
from pairwright.tasks.training.retriever.clip4idc import Shown
from pairwright.tasks.training.retriever.material import CLIP, Material, open_material


def open_adversary(
    folder: Path, config: TrainConfig, *, rows: Path, dataset: Folder, tokenize: Tokenize
) -> RetrieverAdversary:
    """Make the retriever of a run, as new; every process has one.

    Args:
        folder: what ``material.freeze_material`` wrote.
        config: the run's settings.
        rows: the run's frozen rows.
        dataset: where their parts are.
        tokenize: what turns a text into an answer's tokens.

    Raises:
        ConfigError: the pool has no two texts, or the encoder lacks what it needs.
        ModelError: CLIP's weights are missing.
        StoreError: what was frozen cannot be read.
    """
    material = open_material(folder)
    clip = None
    if (folder / CLIP).exists():
        shown = _shown(material, config, rows=rows, dataset=dataset)
        clip = (ClipConfig.model_validate_json((folder / CLIP).read_text()), shown)
    return make_adversary(
        material,
        config,
        tokenize=tokenize,
        device=torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu"),
        average=make_average(),
        clip=clip,
    )


def _shown(material: Material, config: TrainConfig, *, rows: Path, dataset: Folder) -> Shown:
    """Return what reads and decodes a row's images, by its place among the retriever's rows."""
    where: dict[str, tuple[FrozenRows, int]] = {}
    for split in (config.data.split, config.data.eval_split):
        frozen = FrozenRows(folder=dataset, file=str(rows), split=split)
        where |= {key: (frozen, place) for place, key in enumerate(frozen.keys())}

    def read(place: int) -> Sequence[NDArray[Any]]:
        key = material.entries[place].key
        if key not in where:
            raise StoreError(f"{rows}: has no row {key}")
        frozen, number = where[key]
        return [np.asarray(decode_rgb(image)) for image in frozen.read(number).images]

    return read
