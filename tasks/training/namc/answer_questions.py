"""Let a NAMC answer a benchmark's questions: whatever is asked about two images, it describes how they differ.

Reads a finished run's model. It is fast and always says the same, so that nothing is kept. Needs PyTorch and open_clip.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from schemas.namc import NamcConfig
from schemas.replies import Reply
from schemas.rows import make_key
from tasks.serving.chat import Question
from tasks.store.images import RefusedImageError
from tasks.training.namc.pictures import crop, stack, to_patches
from tasks.training.namc.saved import ABOUT, WEIGHTS, Captioner, load_captioner

PAIR = 2


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
            found = _crops(question)
            if isinstance(found, str):
                state = "refused" if len(question.images) != PAIR else "no image"
                yield Reply(name=name, state=state, detail=found)
            else:
                pairs.append((name, found))
        for (name, _), text in zip(pairs, describe_pairs(captioner, [crops for _, crops in pairs]), strict=True):
            yield Reply(name=name, text=text)


def _crops(question: Question) -> NDArray[np.uint8] | str:
    """Return ``(2, 64, 64, 3)``, or why there are none."""
    if len(question.images) != PAIR:
        return f"NAMC describes two images, and here are {len(question.images)}"
    try:
        return np.stack([crop(data) for data in question.images])
    except RefusedImageError as error:
        return str(error)


def describe_pairs(captioner: Captioner, pairs: Sequence[NDArray[np.uint8]]) -> list[str]:
    """Return what a NAMC says of pairs of crops ``(2, 64, 64, 3)``, all at once."""
    if not pairs:
        return []
    return captioner.write(to_patches(stack(pairs)), NamcConfig())


@lru_cache(maxsize=1)
def _load(folder: Path) -> Captioner:
    return load_captioner(folder)
