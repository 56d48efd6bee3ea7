"""Prompts and wordings: one Jinja file each.

A file holds one prompt, or alternative wordings, one ``kind | template`` per line. Its SHA-256 is
part of the fingerprints of the stages that use it. Its opening comment names the source: a paper,
or ours.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import cycle
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.sandbox import ImmutableSandboxedEnvironment


@dataclass(frozen=True, slots=True)
class Prompt:
    """Prompt template: its source text and the SHA-256 of that."""

    text: str
    sha256: str

    def render(self, **values: object) -> str:
        """Fill the template in; ``jinja2.UndefinedError`` for a missing name."""
        return _template(self.text).render(values)


@dataclass(frozen=True, slots=True)
class Wordings:
    """File of alternative wordings by kind, with the SHA-256 of the file."""

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


@cache
def load_prompt(name: str) -> Prompt:
    """Read the prompt ``NAME.j2``."""
    return _prompt(_read(f"{name}.j2"))


@cache
def load_wordings(name: str) -> Wordings:
    """Read the alternative wordings of ``NAME.j2``."""
    text = _read(f"{name}.j2")
    without_comments = re.sub(r"\{#.*?#\}", "", text, flags=re.DOTALL)
    kinds: dict[str, tuple[Prompt, ...]] = {}
    for line in without_comments.splitlines():
        if line.strip():
            kind, wording = (part.strip() for part in line.split("|", 1))
            kinds[kind] = (*kinds.get(kind, ()), _prompt(wording))
    return Wordings(kinds=kinds, sha256=_prompt(text).sha256)


@cache
def difference_verbs() -> tuple[str, ...]:
    """Return the 49 descriptive verbs of paper 001, Appendix D.2.

    Its list has 50 entries, one of them empty.
    """
    lines = _read("difference_verbs.txt").splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


@cache
def natural_verbs() -> tuple[str, ...]:
    """Return those verbs that a noun phrase can follow (ours); scenes are described by them."""
    return tuple(verb.text for verb in load_wordings("difference_phrases").kinds["verb"])


def _read(filename: str) -> str:
    return (files(__name__) / filename).read_text(encoding="utf-8")


def _prompt(text: str) -> Prompt:
    return Prompt(text=text, sha256=hashlib.sha256(text.encode()).hexdigest())


@cache
def _environment() -> "ImmutableSandboxedEnvironment":
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
    return _environment().from_string(text)
