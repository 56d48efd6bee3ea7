"""Chat format of a model: prompts by its template, answers as tokens with the end that the template gives them.

Texts of rows are data: one that holds a token by which the format is steered is refused. Needs transformers; picklable
as long as the processor is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pairwright.schemas.errors import ModelError
from pairwright.schemas.rows import Turn
from pairwright.tasks.training.freeze_rows import PLACE, RefusedRowError

WORD = "answer"
"""Any word that no template contains behind a question."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What a chat template puts around an answer."""

    tail: str
    """The prompt's last words, behind its last control token: an answer's first token may depend on them."""
    tail_ids: tuple[int, ...]
    lead: str
    """White space between prompt and answer."""
    behind: str
    """What follows an answer that is the last message."""
    end: tuple[int, ...]
    """Tokens that end an answer: those of it up to the first control token."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Text as tokens."""

    ids: tuple[int, ...]
    control: str
    """The control token that is in the text; empty: none is."""

    def checked(self) -> tuple[int, ...]:
        """Return the tokens; ``RefusedRowError``: there is a control token among them."""
        if self.control:
            raise RefusedRowError("a control token in a text", self.control)
        return self.ids


@dataclass(frozen=True)
class Chat:
    """Chat format of a processor, which is what ``AutoProcessor`` gave."""

    processor: Any

    def render(self, messages: Sequence[dict[str, Any]], **how: bool) -> str:
        """Return a conversation in the model's format; ``RefusedRowError``: the template does not take it."""
        from jinja2 import TemplateError

        try:
            return self.processor.apply_chat_template(list(messages), tokenize=False, **how)
        except TemplateError as error:
            raise RefusedRowError("the chat template refuses it", str(error)) from error

    def between(self, messages: Sequence[dict[str, Any]], place: int) -> tuple[int, ...]:
        """Return the tokens from the end of a conversation's answer, which is at ``place``, to where the next begins.

        ``RefusedRowError``: the template shows another text in the answer's place.
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

    def tokenise(self, texts: Iterable[str]) -> dict[str, Tokens]:
        """Return each text's tokens as they are behind a prompt's last words, all in one call of the tokenizer."""
        texts, frame = list(dict.fromkeys(texts)), self.frame
        cut = len(frame.tail_ids)
        behind = self._tokens([frame.tail + frame.lead + text for text in texts])
        own = [text for text, ids in zip(texts, behind, strict=True) if ids[:cut] != frame.tail_ids]
        alone = dict(zip(own, self._tokens([frame.lead + text for text in own]), strict=True))
        found = {text: alone.get(text, ids[cut:]) for text, ids in zip(texts, behind, strict=True)}
        return {text: Tokens(ids, self._control_in(text, ids)) for text, ids in found.items()}

    @cached_property
    def frame(self) -> Frame:
        """Return what is around an answer; its end is all up to the first control token behind it."""
        asked = {"role": "user", "content": [{"type": "text", "text": "question"}]}
        said = {"role": "assistant", "content": [{"type": "text", "text": WORD}]}
        try:
            prompt, whole = self.render([asked], add_generation_prompt=True), self.render([asked, said])
        except (RefusedRowError, ValueError) as error:
            raise ModelError(f"model.name: its chat template takes no question and answer: {error}") from error
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
        return [tuple(ids) for ids in self.processor.tokenizer(texts, add_special_tokens=False)["input_ids"]]

    def _control_in(self, text: str, ids: Sequence[int]) -> str:
        """Return a control token of a text; an unknown character is not the token that stands for one."""
        found = [self._control[token] for token in self._control.keys() & set(ids)]
        return next((mark for mark in (*found, *self._marks) if mark in text), "")

    @cached_property
    def _control(self) -> dict[int, str]:
        """Return the tokens that no text may hold: special ones, and added ones that look it, by number.

        Gemma's added tokens are also runs of spaces and line ends, which may be in any text.
        """
        tokenizer = self.processor.tokenizer
        added = tokenizer.added_tokens_decoder.items()
        control = {number: token.content for number, token in added if token.special or token.content[:1] in "<[{|"}
        return control | dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))

    @cached_property
    def _marks(self) -> frozenset[str]:
        """Return what the processor itself replaces in texts, by images for one."""
        own = vars(self.processor).items()
        return frozenset(value for name, value in own if name.endswith("_token") and isinstance(value, str)) - {""}


def how_to_encode(processor: Any, prompt: str) -> dict[str, bool]:
    """Return what a processor is called with, beside prompts that its template rendered, one of which is given.

    Where the template has written the mark of the beginning, the tokenizer must not: the model has never seen two.
    """
    first = processor.tokenizer.bos_token
    return {"add_special_tokens": False} if first and prompt.startswith(first) else {}


def make_messages(turns: Sequence[Turn], images: int) -> list[dict[str, Any]]:
    """Return a prompt as chat templates take it, with a place for each image."""
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
