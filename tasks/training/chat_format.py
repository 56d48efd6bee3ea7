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
    # end tokens of an answer: those of ``behind`` up to its first control token
    end: tuple[int, ...]


@dataclass(frozen=True)
class ChatFormat:
    """Chat format of a processor from ``AutoProcessor``."""

    processor: Any

    def render_conversation(self, messages: Sequence[dict[str, Any]], **options: bool) -> str:
        """Return a conversation in the model's format.

        ``RefusedRowError``: the template rejects it.
        """
        from jinja2 import TemplateError

        try:
            return self.processor.apply_chat_template(list(messages), tokenize=False, **options)
        except TemplateError as error:
            raise RefusedRowError("the chat template refuses it", str(error)) from error

    def between(self, messages: Sequence[dict[str, Any]], index: int) -> tuple[int, ...]:
        """Return the tokens between the answer in message ``index`` and the next answer.

        ``RefusedRowError``: the template rewrites earlier answers.
        """
        answer = messages[index]["content"][0]["text"].strip()
        answered = self.render_conversation(messages[: index + 1])
        next_prompt = self.render_conversation(messages[: index + 2], add_generation_prompt=True)
        frame = self.frame
        if not answered.endswith(answer + frame.behind) or not next_prompt.startswith(answered):
            raise RefusedRowError("the chat template changes earlier answers")
        before = f"{frame.tail}{frame.lead}{answer}"
        rest = frame.behind + next_prompt.removeprefix(answered)
        before_ids, whole_ids, rest_ids = self._tokens([before, before + rest, rest])
        cut = len(before_ids)
        ids = whole_ids[cut:] if whole_ids[:cut] == before_ids else rest_ids
        if ids[: len(frame.end)] == frame.end:
            return ids[len(frame.end) :]
        return ids

    def tokenise_answers(self, texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """Return the tokens of each text as an answer to a prompt.

        The tokenizer is called once, and again for texts whose first token depends on the prompt.
        """
        frame = self.frame
        cut = len(frame.tail_ids)
        different = list(dict.fromkeys(texts))
        behind_tail = self._tokens([frame.tail + frame.lead + text for text in different])
        tokens: dict[str, tuple[int, ...]] = {}
        separate: list[str] = []
        for text, ids in zip(different, behind_tail, strict=True):
            tokens[text] = ids[cut:]
            if ids[:cut] != frame.tail_ids:
                separate.append(text)
        separate_ids = self._tokens([frame.lead + text for text in separate])
        tokens.update(zip(separate, separate_ids, strict=True))
        return tokens

    def refuse_control_tokens(self, text: str, ids: Sequence[int]) -> None:
        """Refuse a text that spells a control token.

        Unknown characters, which become one, are accepted.
        """
        control = self._control
        texts = [control[token] for token in control.keys() & set(ids)]
        for mark in (*texts, *self._marks):
            if mark and mark in text:
                raise RefusedRowError("a control token in a text", mark)

    @cached_property
    def frame(self) -> Frame:
        """Return the template text around an answer."""
        question = {"role": "user", "content": [{"type": "text", "text": "question"}]}
        answer = {"role": "assistant", "content": [{"type": "text", "text": WORD}]}
        try:
            prompt = self.render_conversation([question], add_generation_prompt=True)
            whole = self.render_conversation([question, answer])
        except (RefusedRowError, ValueError) as error:
            raise ModelError(
                f"model.name: its chat template cannot render a question and answer: {error}"
            ) from error
        before, _, behind = whole.rpartition(WORD)
        lead = before.removeprefix(prompt) if before.startswith(prompt) else ""
        tail = prompt[self._end_of_control(prompt) :]
        tail_ids, behind_ids = self._tokens([tail, behind])
        return Frame(
            tail=tail,
            tail_ids=tail_ids,
            lead=lead if lead.isspace() else "",
            behind=behind,
            end=self._end_tokens(behind_ids),
        )

    def _end_of_control(self, prompt: str) -> int:
        """Return the position behind a prompt's last control token."""
        position = 0
        for text in self._control.values():
            if text in prompt:
                position = max(position, prompt.rfind(text) + len(text))
        return position

    def _end_tokens(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        """Return the tokens up to the first control token; without one, the tokenizer's end."""
        for index, token in enumerate(ids):
            if token in self._control:
                return ids[: index + 1]
        return (self.processor.tokenizer.eos_token_id,)

    def _tokens(self, texts: list[str]) -> list[tuple[int, ...]]:
        if not texts:
            return []
        encoded = self.processor.tokenizer(texts, add_special_tokens=False)
        return [tuple(ids) for ids in encoded["input_ids"]]

    @cached_property
    def _control(self) -> dict[int, str]:
        """Return control tokens by id: special ones, and added ones in brackets.

        Gemma adds white space, too.
        """
        tokenizer = self.processor.tokenizer
        control: dict[int, str] = {}
        for number, token in tokenizer.added_tokens_decoder.items():
            if token.special or token.content[:1] in "<[{|":
                control[number] = token.content
        control.update(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))
        return control

    @cached_property
    def _marks(self) -> frozenset[str]:
        """Return the placeholders that the processor replaces in texts, such as the image token."""
        marks: set[str] = set()
        for name, value in vars(self.processor).items():
            if name.endswith("_token") and isinstance(value, str) and value:
                marks.add(value)
        return frozenset(marks)


def encoding_options(processor: Any, prompt: str) -> dict[str, bool]:
    """Return options of a processor call.

    No second start token is added where the rendered prompt has one.
    """
    start_token = processor.tokenizer.bos_token
    if start_token and prompt.startswith(start_token):
        return {"add_special_tokens": False}
    return {}


def make_messages(turns: Sequence[Turn], images: int) -> list[dict[str, Any]]:
    """Return a prompt as messages of a chat template, with a placeholder for each image."""
    has_placeholders = any(PLACE in turn.text for turn in turns)
    first_user = next((index for index, turn in enumerate(turns) if turn.role == "user"), 0)
    messages: list[dict[str, Any]] = []
    for index, turn in enumerate(turns):
        text = turn.text
        if index == first_user and not has_placeholders:
            text = PLACE * images + text
        messages.append({"role": turn.role, "content": _make_content(text)})
    return messages


def _make_content(text: str) -> list[dict[str, str]]:
    """Return a message's parts: its texts, with an image at each placeholder."""
    content: list[dict[str, str]] = []
    for index, piece in enumerate(text.split(PLACE)):
        if index:
            content.append({"type": "image"})
        if piece.strip():
            content.append({"type": "text", "text": piece.strip("\n")})
    return content
