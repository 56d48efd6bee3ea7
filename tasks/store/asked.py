"""Count what a dataset's served models were asked: what its parts say of themselves, and what unfinished shards keep.

A part of a stage that asks a served model says in its metadata how many answers it took and how many tokens they had,
those included that were refused and asked for again. What came of no answer (a busy server) is not counted.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pairwright.tasks.store.answers import Answers, read_answers
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.part import Part, read_about

CALLS, PROMPT, COMPLETION = "calls", "prompt_tokens", "completion_tokens"


@dataclass(frozen=True, slots=True)
class Asked:
    """Count what served models were asked."""

    calls: int = 0
    """Answers."""
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Return the tokens of prompts and answers together."""
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: "Asked") -> "Asked":
        """Return both together."""
        return Asked(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
        )


def asked_in(answers: Mapping[str, Answers]) -> dict[str, str]:
    """Return what a part says of what its shard asked; nothing where its stage asks nothing."""
    if not answers:
        return {}
    asked = _sum(value for memory in answers.values() for value in memory.values())
    return {
        CALLS: str(asked.calls),
        PROMPT: str(asked.prompt_tokens),
        COMPLETION: str(asked.completion_tokens),
    }


def asked_of_part(about: Mapping[str, str]) -> Asked | None:
    """Return what a part says that its shard asked; ``None`` where it says nothing of that."""
    if CALLS not in about:
        return None
    return Asked(*(int(about.get(name, "0")) for name in (CALLS, PROMPT, COMPLETION)))


def _sum(values: Iterable[bytes]) -> Asked:
    total = Asked()
    for value in values:
        served = json.loads(value)["served"]
        total += Asked(1, int(served[PROMPT]), int(served[COMPLETION]))
    return total


class AskedOf:
    """Count what was asked for a dataset, over all of its builds; each part is read once."""

    def __init__(self, folder: Folder, journals: Path) -> None:
        """Read nothing yet; ``journals`` is this machine's folder of unfinished shards."""
        self._folder = folder
        self._journals = journals
        self._known: dict[str, Asked | None] = {}

    def count(self) -> Asked:
        """Return what was asked until now.

        Raises:
            StoreError: a part is damaged.
        """
        unfinished = _sum(value for path in self._journals.rglob("*.answers") for value in read_answers(path))
        return sum((self._of(name) or Asked() for name in self._parts()), unfinished)

    def _of(self, name: str) -> Asked | None:
        if name not in self._known:
            self._known[name] = asked_of_part(read_about(Part(self._folder, name)))
        return self._known[name]

    def _parts(self) -> Iterator[str]:
        """Yield the parts of the tables whose first part says what was asked: the others have none that do."""
        for stage in self._folder.folders("tables"):
            for mark in self._folder.folders(f"tables/{stage}"):
                table = f"tables/{stage}/{mark}"
                names = [f"{table}/{name}" for name in self._folder.names(table) if name.endswith(".parquet")]
                if names and self._of(names[0]) is not None:
                    yield from names
