"""Read the evaluation files that paper 003 published: one line per question, its words and its answer in it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.benchmark import find_image
from pairwright.tasks.evaluation.read_json import Given, read_records

CAPTION = re.compile(r'Which image suits the caption "(.*)" better\?', re.DOTALL)
STATEMENT = re.compile(r'Is the statement "(.*)" True or False\?', re.DOTALL)


class Line(Given):
    """Be a line of such a file."""

    image: list[str]
    text: str
    answer: str
    question_id: str | int
    category: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Be a question about two images."""

    name: str
    images: tuple[Path, Path]
    words: str
    """The caption or the statement."""
    answer: str
    category: str
    folder: str
    """The first part of the first image's name; empty: it has one part."""
    where: str


def read_published(path: Path, pattern: re.Pattern[str], options: tuple[str, ...]) -> Iterator[Published]:
    """Yield the questions of a file whose words are between those of a pattern.

    Raises:
        ConfigError: a line is of another form, or its answer is none of the options.
    """
    for line, where in read_records(path, Line):
        found = pattern.search(line.text)
        if found is None:
            raise ConfigError(f"{where}: text: asks something else than this benchmark does")
        if line.answer not in options or len(line.image) != 2:
            raise ConfigError(f"{where}: needs two images, and an answer of {', '.join(options)}")
        first, second = (find_image(path.parent, name, where=where) for name in line.image)
        yield Published(
            name=str(line.question_id),
            images=(first, second),
            words=found[1],
            answer=line.answer,
            category=line.category,
            folder=line.image[0].split("/")[0] if "/" in line.image[0] else "",
            where=where,
        )
