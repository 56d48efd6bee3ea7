"""Count what served models wrote around their answers, by stage: thoughts, fences, roles, ...

Reads the metadata of parts, which count the answers that each shard took, refused ones included.
Local datasets only: elsewhere each part would be a request.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pairwright.schemas.errors import StoreError
from pairwright.tasks.store.answers import CALLS, MODELS, REMOVED, THOUGHT_TOKENS
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
    models: Mapping[str, int] = field(default_factory=dict[str, int])
    """Answers by model and revision, as servers stated them."""
    mixed: str = ""
    """Which models answered this stage and others under one name, in words; empty: a single one."""

    def as_json(self) -> dict[str, Any]:
        """Return the counts as ``pairwright status --json`` prints them."""
        return {
            "stage": self.stage,
            "answers": self.answers,
            "thought_tokens": self.thought_tokens,
            "removed": dict(self.removed),
            "models": dict(self.models),
        }

    def __str__(self) -> str:
        kinds = [f"{kind} ({count:,})" for kind, count in self.removed.items()]
        notes = [f"taken off {', '.join(kinds)}"] if kinds else []
        if self.thought_tokens:
            notes.append(f"{self.thought_tokens:,} tokens of thoughts")
        lines = [self.mixed] if self.mixed else []
        if notes:
            lines.append(f"{self.stage}: of {self.answers:,} answers: {'; '.join(notes)}")
        return "\n".join(lines)


def count_answers(folder: Folder, stages: Sequence[Planned]) -> list[AnswerCounts]:
    """Return the counts of each stage of which there is something to say.

    Something was taken off its answers, it had thoughts, or several models answered.
    """
    counts: list[AnswerCounts] = []
    names: list[str] = []  # of the models that were asked for
    if not folder.is_local:
        return counts
    for planned in stages:
        if planned.keeps_answers and planned.is_on:
            stage_counts = _count_table(folder, planned)
            counts.append(stage_counts)
            names.append(planned.config.served.model)
    return [count for count in _find_mixed(counts, names) if str(count)]


def _find_mixed(counts: Sequence[AnswerCounts], names: Sequence[str]) -> Iterator[AnswerCounts]:
    """Yield counts with what is to be said of models that answered under one name."""
    models: dict[str, Counter[str]] = {}
    stages: dict[str, list[str]] = {}
    for count, name in zip(counts, names, strict=True):
        models.setdefault(name, Counter()).update(count.models)
        stages.setdefault(name, []).append(count.stage)
    for count, name in zip(counts, names, strict=True):
        if len(models[name]) < 2 or count.stage != stages[name][0]:
            yield count
            continue
        stated = [f"{model or 'not stated'} ({number:,})" for model, number in models[name].items()]
        mixed = (
            f"{', '.join(stages[name])}: {len(stated)} models or revisions answered as "
            f"{name or 'one model'}: {', '.join(stated)}"
        )
        yield replace(count, mixed=mixed)


def _count_table(folder: Folder, planned: Planned) -> AnswerCounts:
    answers = 0
    thought_tokens = 0
    removed = Counter[str]()
    models = Counter[str]()
    for file in folder.names(planned.table_path, ".parquet"):
        try:
            about = read_about(Part(folder, f"{planned.table_path}/{file}"))
        except StoreError:  # a damaged part, which `status --verify` names
            continue
        answers += int(about.get(CALLS, 0))
        thought_tokens += int(about.get(THOUGHT_TOKENS, 0))
        removed.update(json.loads(about.get(REMOVED, "{}")))
        models.update(json.loads(about.get(MODELS, "{}")))
    return AnswerCounts(
        stage=planned.stage.name,
        answers=answers,
        thought_tokens=thought_tokens,
        removed=dict(removed.most_common()),
        models=dict(models.most_common()),
    )
