"""Read the words of a domain from files that a profile names: what is a thing, and what is none.

The texts go on record, so that a build can be resumed without the files.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pairwright.schemas.config import Profile, add_findings
from pairwright.schemas.errors import ConfigError
from pairwright.tasks.texts.things import read_words

FILE = "@"
"""Mark of a file of names, one per line, among names."""


def pin_words(profile: Profile) -> Profile:
    """Return the profile with the names and the list of its files; ``ConfigError`` for a bad one.

    ``tagging.included: [rust, @domain.txt]`` becomes the names.
    """
    tagging = profile.tagging
    found: dict[str, Any] = {}
    for field in ("included", "excluded"):
        names: Sequence[str] = getattr(tagging, field)
        if any(name.startswith(FILE) for name in names):
            found[f"tagging.{field}"] = tuple(dict.fromkeys(_expand(names, field)))
    if tagging.no_things:
        found["tagging.word_list"] = _read_list(Path(tagging.no_things).expanduser())
    return add_findings(profile, found) if found else profile


def _expand(names: Sequence[str], field: str) -> Iterator[str]:
    """Yield the names, those of files in their place."""
    for name in names:
        if not name.startswith(FILE):
            yield name
            continue
        path = Path(name.removeprefix(FILE)).expanduser()
        for line in _read(path, field).splitlines():
            text = line.partition("#")[0].strip()
            if text:
                yield text


def _read_list(path: Path) -> str:
    """Return the text of a list in place of ours; one without entries is refused."""
    text = _read(path, "no_things")
    word_list = read_words(text)
    if not word_list.things and not word_list.whole:
        raise ConfigError(
            f"tagging.no_things: {path}: has no section like [stuff] with names between commas; "
            "the form is that of tasks/texts/no_things.txt"
        )
    return text


def _read(path: Path, field: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"tagging.{field}: {path}: cannot be read as text: {error}") from None
