"""Prompts and wordings: one Jinja file each.

A file holds one prompt, or alternative wordings, one ``kind | template`` per line. Its SHA-256 is
part of the fingerprints of the stages that use it. Its opening comment names the source: a paper,
or ours. Inside ``use_prompts`` a user's texts replace those of the same names.
"""

import hashlib
import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import cycle
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.sandbox import ImmutableSandboxedEnvironment

ENDING = ".j2"
COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_REPLACED: ContextVar[Mapping[str, str]] = ContextVar(
    "replaced prompts", default=MappingProxyType({})
)
"""Texts in place of ours, by name; a coroutine sees those of the code that started it."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Prompt template: its source text and the SHA-256 of that."""

    text: str
    sha256: str

    def render(self, **values: object) -> str:
        """Fill the template in; ``jinja2.UndefinedError`` for a missing name."""
        return _template(self.text).render(values)


@dataclass(frozen=True, slots=True, eq=False)
class Wordings:
    """File of alternative wordings by kind, with the SHA-256 of the file; one object per text."""

    kinds: Mapping[str, tuple[Prompt, ...]]
    sha256: str

    def say(
        self,
        kind: str,
        rng: Random,
        **values: object,
    ) -> str:
        """Choose one wording of the kind and fill it in."""
        return rng.choice(self.kinds[kind]).render(**values)

    def dealt(self, kind: str, rng: Random) -> Iterator[Prompt]:
        """Deal the wordings of the kind without end, each once before any comes again."""
        return cycle(rng.sample(self.kinds[kind], len(self.kinds[kind])))


@contextmanager
def use_prompts(texts: Mapping[str, str]) -> Generator[None]:
    """Load these texts in place of ours, by the names of the files, in this thread or task."""
    token = _REPLACED.set(texts)
    try:
        yield
    finally:
        _REPLACED.reset(token)


def prompt_names() -> list[str]:
    """Return the names of all prompts."""
    names = [path.name for path in files(__name__).iterdir()]
    return sorted(name.removesuffix(ENDING) for name in names if name.endswith(ENDING))


def load_prompt(name: str) -> Prompt:
    """Read the prompt ``NAME.j2``."""
    return _make_prompt(_load_text(name))


def hash_prompt(name: str) -> str:
    """Return the SHA-256 of a prompt file; empty: there is none of this name."""
    try:
        return load_prompt(name).sha256
    except FileNotFoundError:
        return ""


def load_wordings(name: str) -> Wordings:
    """Read the alternative wordings of ``NAME.j2``."""
    return _make_wordings(_load_text(name))


def list_wordings(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the lines of a file of wordings: number, kind, template; without " | ", kind is ""."""
    without_comments = COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)
    for number, line in enumerate(without_comments.splitlines(), start=1):
        if line.strip():
            kind, bar, wording = line.partition("|")
            yield number, kind.strip() if bar else "", wording.strip() if bar else line.strip()


@cache
def _make_wordings(text: str) -> Wordings:
    kinds: dict[str, tuple[Prompt, ...]] = {}
    for _, kind, wording in list_wordings(text):
        kinds[kind] = (*kinds.get(kind, ()), _make_prompt(wording))
    return Wordings(kinds=kinds, sha256=_make_prompt(text).sha256)


def difference_verbs() -> tuple[str, ...]:
    """Return the verbs that a half may begin with: the 49 of paper 001, Appendix D.2.

    Its list has 50 entries, one of them empty.
    """
    return tuple(verb.text for verb in load_wordings("difference_verbs").kinds["verb"])


def natural_verbs() -> tuple[str, ...]:
    """Return those verbs that a noun phrase can follow (ours); scenes are described by them."""
    return tuple(verb.text for verb in load_wordings("difference_phrases").kinds["verb"])


def _load_text(name: str) -> str:
    replaced = _REPLACED.get()
    return replaced[name] if name in replaced else _read(f"{name}{ENDING}")


@cache
def _read(filename: str) -> str:
    return (files(__name__) / filename).read_text(encoding="utf-8")


@cache
def _make_prompt(text: str) -> Prompt:
    return Prompt(text=text, sha256=hashlib.sha256(text.encode()).hexdigest())


@cache
def environment() -> "ImmutableSandboxedEnvironment":
    """Return the environment of all templates: strict, sandboxed, nothing escaped."""
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    # Models read prompts, browsers do not: nothing is escaped.
    return ImmutableSandboxedEnvironment(
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _template(text: str) -> "Template":
    return environment().from_string(text)
