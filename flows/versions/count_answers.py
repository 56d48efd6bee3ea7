"""Count what served models wrote around their answers, by stage: thoughts, fences, roles, ...

Reads the metadata of parts, which count the answers that each shard took, refused ones included.
Local datasets only: elsewhere each part would be a request.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pairwright.schemas.errors import StoreError
from pairwright.tasks.store.answers import CALLS, REMOVED, THOUGHT_TOKENS
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.part import Part, read_about
from pairwright.tasks.store.stage import Planned


@dataclass(frozen=True, kw_only=True)
class AnswerCounts:
    """Answers of served models that a stage took."""

    stage: str
    answers: int
    thought_tokens: int
    """Tokens of thoughts that servers returned apart from the text."""
    removed: Mapping[str, int]
    """Answers by the kind of what was taken off, the most frequent first."""

    def as_json(self) -> dict[str, Any]:
        """Return the counts as ``pairwright status --json`` prints them."""
        return {
            "stage": self.stage,
            "answers": self.answers,
            "thought_tokens": self.thought_tokens,
            "removed": dict(self.removed),
        }

    def __str__(self) -> str:
        kinds = [f"{kind} ({count:,})" for kind, count in self.removed.items()]
        notes = [f"taken off {', '.join(kinds)}"] if kinds else []
        if self.thought_tokens:
            notes.append(f"{self.thought_tokens:,} tokens of thoughts")
        return f"{self.stage}: of {self.answers:,} answers: {'; '.join(notes)}"


def count_answers(folder: Folder, stages: Sequence[Planned]) -> list[AnswerCounts]:
    """Return the counts of each stage that had something taken off its answers, or thoughts."""
    counts: list[AnswerCounts] = []
    if not folder.is_local:
        return counts
    for planned in stages:
        if planned.keeps_answers and planned.is_on:
            stage_counts = _count_table(folder, planned)
            if stage_counts.removed or stage_counts.thought_tokens:
                counts.append(stage_counts)
    return counts


def _count_table(folder: Folder, planned: Planned) -> AnswerCounts:
    answers = 0
    thought_tokens = 0
    removed = Counter[str]()
    for file in folder.names(planned.table_path, ".parquet"):
        try:
            about = read_about(Part(folder, f"{planned.table_path}/{file}"))
        except StoreError:  # a damaged part, which `status --verify` names
            continue
        answers += int(about.get(CALLS, 0))
        thought_tokens += int(about.get(THOUGHT_TOKENS, 0))
        removed.update(json.loads(about.get(REMOVED, "{}")))
    return AnswerCounts(
        stage=planned.stage.name,
        answers=answers,
        thought_tokens=thought_tokens,
        removed=dict(removed.most_common()),
    )
