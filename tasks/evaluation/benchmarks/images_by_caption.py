"""Ask which of two images suits a caption (paper 003), or which of two captions suits an image (ours)."""

from collections.abc import Sequence
from pathlib import Path

from pairwright.prompts import load
from pairwright.tasks.evaluation.as_written import as_written
from pairwright.tasks.evaluation.benchmark import Asked
from pairwright.tasks.evaluation.benchmarks.choices import Choice

IMAGES = ("Image 1", "Image 2")
BY_CAPTION, BY_IMAGE = "choose_image", "choose_caption"


def choose_image(
    name: str, images: tuple[Path, Path], caption: str, *, answer: str, category: str = "", item: str = ""
) -> Choice:
    """Return the question which of two images a caption suits."""
    asked = Asked(
        name=name,
        item=item or name,
        text=_ask_for_image((caption,)),
        images=images,
        prompt=BY_CAPTION,
        words=(caption,),
        reword=_ask_for_image,
    )
    return Choice(asked=asked, answer=answer, words=IMAGES, category=category, kind="image" if item else "accuracy")


def choose_caption(
    name: str, image: Path, captions: tuple[str, str], *, answer: str, category: str = "", item: str = ""
) -> Choice:
    """Return the question which of two captions suits an image."""
    asked = Asked(
        name=name,
        item=item,
        text=_ask_for_caption(captions),
        images=(image,),
        prompt=BY_IMAGE,
        words=captions,
        reword=_ask_for_caption,
    )
    return Choice(asked=asked, answer=answer, words=captions, category=category, kind="text")


def _ask_for_image(words: Sequence[str]) -> str:
    return load(BY_CAPTION).render(caption=as_written(words[0]))


def _ask_for_caption(words: Sequence[str]) -> str:
    return load(BY_IMAGE).render(first=as_written(words[0]), second=as_written(words[1]))
