"""Chat format of a model: prompts by its template, answers as tokens with the template's end token.

Texts of rows are data: one with a control token of the format is refused. Needs transformers;
picklable if the processor is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pairwright.schemas.errors import ModelError
from pairwright.schemas.rows import Turn
from pairwright.tasks.training.freeze_rows import PLACE, RefusedRowError

WORD = "answer"  # a word that no template contains after a question


@dataclass(frozen=True, slots=True)
class Frame:
    """Template text around an answer."""

    # end of the prompt after its last control token; an answer's first token may depend on it
    tail: str
    tail_ids: tuple[int, ...]
    lead: str  # white space between prompt and answer
    behind: str  # text after an answer in the last message
    end: tuple[
        int, ...
    ]  # end tokens of an answer: those of ``behind`` up to its first control token


@dataclass(frozen=True)
class ChatFormat:
    """Chat format of a processor from ``AutoProcessor``."""

    processor: Any

    def render(self, messages: Sequence[dict[str, Any]], **how: bool) -> str:
        """Return a conversation in the model's format; ``RefusedRowError`` where the template rejects it."""
        from jinja2 import TemplateError

        try:
            return self.processor.apply_chat_template(list(messages), tokenize=False, **how)
        except TemplateError as error:
            raise RefusedRowError("the chat template refuses it", str(error)) from error

    def between(self, messages: Sequence[dict[str, Any]], place: int) -> tuple[int, ...]:
        """Return the tokens between the answer at ``place`` and the next answer.

        ``RefusedRowError``: the template rewrites earlier answers.
        """
        answer = messages[place]["content"][0]["text"].strip()
        said = self.render(messages[: place + 1])
        asked = self.render(messages[: place + 2], add_generation_prompt=True)
        frame = self.frame
        if not said.endswith(answer + frame.behind) or not asked.startswith(said):
            raise RefusedRowError("the chat template changes earlier answers")
        before, rest = f"{frame.tail}{frame.lead}{answer}", frame.behind + asked.removeprefix(said)
        known, longer, alone = self._tokens([before, before + rest, rest])
        ids, end = longer[len(known) :] if longer[: len(known)] == known else alone, frame.end
        return ids[len(end) :] if ids[: len(end)] == end else ids

    def tokenise(self, texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """Return the tokens of each text as an answer to a prompt, in one call of the tokenizer."""
        texts, frame = list(dict.fromkeys(texts)), self.frame
        cut = len(frame.tail_ids)
        behind = self._tokens([frame.tail + frame.lead + text for text in texts])
        own = [text for text, ids in zip(texts, behind, strict=True) if ids[:cut] != frame.tail_ids]
        alone = dict(zip(own, self._tokens([frame.lead + text for text in own]), strict=True))
        return {text: alone.get(text, ids[cut:]) for text, ids in zip(texts, behind, strict=True)}

    def check(self, text: str, ids: Sequence[int]) -> None:
        """Refuse a text that spells a control token; unknown characters, which become one, are accepted."""
        found = [self._control[token] for token in self._control.keys() & set(ids)]
        if mark := next((mark for mark in (*found, *self._marks) if mark in text), ""):
            raise RefusedRowError("a control token in a text", mark)

    @cached_property
    def frame(self) -> Frame:
        """Return the template text around an answer."""
        asked = {"role": "user", "content": [{"type": "text", "text": "question"}]}
        said = {"role": "assistant", "content": [{"type": "text", "text": WORD}]}
        try:
            prompt, whole = (
                self.render([asked], add_generation_prompt=True),
                self.render([asked, said]),
            )
        except (RefusedRowError, ValueError) as error:
            raise ModelError(
                f"model.name: its chat template cannot render a question and answer: {error}"
            ) from error
        before, _, behind = whole.rpartition(WORD)
        lead = before.removeprefix(prompt) if before.startswith(prompt) else ""
        control = [text for text in self._control.values() if text in prompt]
        tail = prompt[max((prompt.rfind(text) + len(text) for text in control), default=0) :]
        tail_ids, behind_ids = self._tokens([tail, behind])
        ends = [n for n, token in enumerate(behind_ids) if token in self._control]
        end = behind_ids[: ends[0] + 1] if ends else (self.processor.tokenizer.eos_token_id,)
        return Frame(tail, tail_ids, lead if lead.isspace() else "", behind, end)

    def _tokens(self, texts: list[str]) -> list[tuple[int, ...]]:
        if not texts:
            return []
        return [
            tuple(ids)
            for ids in self.processor.tokenizer(texts, add_special_tokens=False)["input_ids"]
        ]

    @cached_property
    def _control(self) -> dict[int, str]:
        """Return control tokens by id: special ones, and added ones in brackets (Gemma adds white space, too)."""
        tokenizer = self.processor.tokenizer
        added = tokenizer.added_tokens_decoder.items()
        control = {
            number: token.content
            for number, token in added
            if token.special or token.content[:1] in "<[{|"
        }
        return control | dict(
            zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True)
        )

    @cached_property
    def _marks(self) -> frozenset[str]:
        """Return the placeholders that the processor replaces in texts, such as the image token."""
        own = vars(self.processor).items()
        return frozenset(
            value for name, value in own if name.endswith("_token") and isinstance(value, str)
        ) - {""}


def encoding_options(processor: Any, prompt: str) -> dict[str, bool]:
    """Return options of a processor call: no second start token where the rendered prompt has one."""
    first = processor.tokenizer.bos_token
    return {"add_special_tokens": False} if first and prompt.startswith(first) else {}


def make_messages(turns: Sequence[Turn], images: int) -> list[dict[str, Any]]:
    """Return a prompt as messages of a chat template, with a place for each image."""
    marked = any(PLACE in turn.text for turn in turns)
    first = next((n for n, turn in enumerate(turns) if turn.role == "user"), 0)
    messages: list[dict[str, Any]] = []
    for number, turn in enumerate(turns):
        text = PLACE * images + turn.text if number == first and not marked else turn.text
        content: list[dict[str, str]] = []
        for place, piece in enumerate(text.split(PLACE)):
            content += [{"type": "image"}] if place else []
            content += [{"type": "text", "text": piece.strip("\n")}] if piece.strip() else []
        messages.append({"role": turn.role, "content": content})
    return messages
