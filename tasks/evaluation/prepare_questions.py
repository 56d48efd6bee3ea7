"""Make questions ready to be asked: images are read, and perturbed where that is wanted.

Reads image files; what they hold is decoded by whoever is asked, or here where pixels are changed.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pairwright.schemas.replies import Reply
from pairwright.tasks.evaluation.benchmark import Asked
from pairwright.tasks.serving.chat import Question
from pairwright.tasks.store.images import RefusedImageError

IMAGE_BYTES = 256 << 20
"""A larger file is refused before it is read."""
Change = Callable[[Question, Asked], Question]


def keep(question: Question, _asked: Asked) -> Question:
    """Return the question as it is."""
    return question


def prepare_questions(asked: Iterable[Asked], change: Change = keep) -> Iterator[tuple[str, Question] | Reply]:
    """Yield each question under its name, or the reply that an image is missing.

    Args:
        asked: the questions of a benchmark.
        change: what becomes of a question before it is asked.
    """
    for one in asked:
        try:
            images = tuple(_read(image) for image in one.images)
            yield one.name, change(_question(one, images), one)
        except (OSError, RefusedImageError) as error:
            yield Reply(name=one.name, state="no image", detail=str(error))


def _question(asked: Asked, images: tuple[bytes, ...]) -> Question:
    return Question(prompt=asked.prompt, text=asked.text, images=images, max_tokens=asked.most_tokens, temperature=0.0)


def _read(image: Path | bytes) -> bytes:
    if isinstance(image, bytes):
        return image
    if (size := image.stat().st_size) > IMAGE_BYTES:
        raise RefusedImageError("too many pixels", f"{image}: {size:,} bytes")
    return image.read_bytes()
