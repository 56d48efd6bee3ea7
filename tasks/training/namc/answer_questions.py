"""Let a NAMC answer a benchmark's questions: whatever is asked about two images, it describes how they differ.

Reads a finished run's model, and at the paper's size the weights of its CNN, by which images become features as they
come. It is fast and always says the same, so that nothing is kept. Needs PyTorch, open_clip and, for a CNN, timm.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from pairwright.schemas.errors import ModelError
from pairwright.schemas.replies import Reply
from pairwright.schemas.rows import make_key
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.models.namc.places import CROP, load_grids
from pairwright.tasks.serving.chat import Question
from pairwright.tasks.store.images import RefusedImageError, decode_rgb
from pairwright.tasks.training.examples import PAIR
from pairwright.tasks.training.namc.pictures import crop, stack, to_patches
from pairwright.tasks.training.namc.saved import ABOUT, WEIGHTS, Captioner, load_captioner

if TYPE_CHECKING:
    from torch import Tensor


def is_namc(folder: Path) -> bool:
    """Say whether a folder holds a NAMC."""
    return (folder / ABOUT).is_file()


def identify(folder: Path) -> str:
    """Return what tells a NAMC from others.

    Raises:
        ModelError: it cannot be loaded.
    """
    _load(folder)
    return make_key("namc", blake2b((folder / WEIGHTS).read_bytes(), digest_size=16).hexdigest())


def answer_questions(questions: Iterable[tuple[str, Question]], *, folder: Path, batch: int) -> Iterator[Reply]:
    """Yield a reply to each question, so many at once; of other than two images it has nothing to say.

    Raises:
        ModelError: the model cannot be loaded.
    """
    captioner, source = _load(folder), iter(questions)
    while some := list(islice(source, batch)):
        pairs: list[tuple[str, NDArray[np.uint8]]] = []
        for name, question in some:
            found = _crops(captioner, question)
            if isinstance(found, str):
                state = "refused" if len(question.images) != PAIR else "no image"
                yield Reply(name=name, state=state, detail=found)
            else:
                pairs.append((name, found))
        for (name, _), text in zip(pairs, describe_pairs(captioner, [crops for _, crops in pairs]), strict=True):
            yield Reply(name=name, text=text)


def _crops(captioner: Captioner, question: Question) -> NDArray[np.uint8] | str:
    """Return ``(2, side, side, 3)``, or why there are none."""
    if len(question.images) != PAIR:
        return f"NAMC describes two images, and here are {len(question.images)}"
    try:
        return np.stack([cut(captioner, data) for data in question.images])
    except RefusedImageError as error:
        return str(error)


def cut(captioner: Captioner, data: bytes) -> NDArray[np.uint8]:
    """Return the crop of an encoded image that a NAMC sees, ``(side, side, 3)``.

    Raises:
        RefusedImageError: it cannot be decoded.
    """
    return CROP(decode_rgb(data)) if captioner.cnn else crop(data)


def describe_pairs(captioner: Captioner, pairs: Sequence[NDArray[np.uint8]]) -> list[str]:
    """Return what a NAMC says of pairs of crops ``(2, side, side, 3)``, all at once.

    Raises:
        ModelError: its CNN is not on this machine, or another is.
    """
    if not pairs:
        return []
    return captioner.write(_features(captioner, pairs))


def _features(captioner: Captioner, pairs: Sequence[NDArray[np.uint8]]) -> "Tensor":
    if captioner.cnn is None:
        return to_patches(stack(pairs))
    grids = load_grids(captioner.cnn.model_dump_json()).encode([crop for pair in pairs for crop in pair])
    return torch.from_numpy(grids).unflatten(0, (-1, PAIR))


@lru_cache(maxsize=1)
def _load(folder: Path) -> Captioner:
    """Load it; its CNN, too, so that what is missing is said before anything is asked."""
    captioner = load_captioner(folder)
    if captioner.cnn:
        try:
            load_grids(captioner.cnn.model_dump_json())
        except ModelError as error:
            raise ModelError(f"{folder / ABOUT}: the CNN that sees its images is not as it was: {error}") from error
    captioner.model.to(choose_device())
    return captioner
