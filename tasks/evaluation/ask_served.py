"""Let a served model answer a benchmark's questions. Needs an OpenAI-compatible server (vLLM's, for one)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import get_args

from pairwright.schemas.replies import Reply
from pairwright.schemas.rows import Dropped, Failed, Row, make_key
from pairwright.schemas.served import ChatConfig
from pairwright.tasks.serving.ask_rows import ask_rows
from pairwright.tasks.serving.chat import Chat, Question
from pairwright.tasks.store.answers import Answers
from pairwright.tasks.store.images import Reason

UNDECODED: tuple[str, ...] = get_args(Reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedRow(Row):
    """Be a question under its name, or its answer."""

    name: str
    question: Question
    text: str = ""
    cut: bool = False


def ask_served(questions: Iterable[tuple[str, Question]], answers: Answers, *, model: ChatConfig) -> Iterator[Reply]:
    """Yield a reply to each question, as they come; what was answered before is not asked again.

    Raises:
        ConfigError: the configuration names no server.
        ServerError: no server answers.
    """
    names: dict[str, str] = {}

    def rows() -> Iterator[NamedRow]:
        for name, question in questions:
            key = make_key("asked", name)
            names[key] = name
            yield NamedRow(key=key, source_key=key, subject=key, name=name, question=question)

    for result in ask_rows(rows(), _ask, model, answers=answers):
        if isinstance(result, NamedRow):
            yield Reply(name=result.name, text=result.text, cut=result.cut)
        elif isinstance(result, Failed):
            yield Reply(name=names[result.source_key], state="failed", detail=f"{result.reason}: {result.detail}")
        elif isinstance(result, Dropped):
            state = "no image" if result.reason in UNDECODED else "refused"
            yield Reply(name=names[result.source_key], state=state, detail=f"{result.reason}: {result.detail}")


async def _ask(row: NamedRow, chat: Chat) -> NamedRow:
    answer = await chat.ask(row.question)
    return replace(row, text=answer.text.strip(), cut=answer.finish_reason == "length")
