"""Chat format of a model: prompts by its template, answers as tokens with the template's end token.

What a template writes between prompt and answer, such as an empty thought, belongs to the prompt:
it bears no loss, and answers are generated behind it. Texts of rows are data: one with a control
token of the format is refused. Needs transformers; picklable if the processor is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pairwright.schemas.errors import ModelError
from pairwright.schemas.rows import Turn
from pairwright.tasks.serving.clean_text import strip_thoughts
from pairwright.tasks.training.freeze_rows import PLACE, RefusedRowError
from pairwright.tasks.training.template_arguments import list_arguments

ASKED, WORD = "question", "answer"  # words that no template contains
SHOWN = 300  # characters of a rendered conversation in a message
# Qwen's templates put an image's token between these.
QWEN_IMAGE, QWEN_ENCLOSED = "<|image_pad|>", "<|vision_start|><|image_pad|><|vision_end|>"


@dataclass(frozen=True, slots=True)
class Frame:
    """Template text around an answer."""

    header: str  # text between a question and its answer
    opening: str  # the end of ``header``, which the template writes with the answer only
    # end of the prompt after its last control token; an answer's first token may depend on it
    tail: str
    tail_ids: tuple[int, ...]
    lead: str  # spaces between prompt and answer, which may be part of the answer's first token
    behind: str  # text after an answer in the last message
    # end tokens of an answer: those of ``behind`` up to its first control tokens
    end: tuple[int, ...]
    # how a finished answer differs from the prompt for one; empty: it continues the prompt
    difference: str = ""


@dataclass(frozen=True)
class ChatFormat:
    """Chat format of a processor from ``AutoProcessor``."""

    processor: Any

    def render_conversation(self, messages: Sequence[dict[str, Any]], **options: bool) -> str:
        """Return a conversation in the model's format.

        ``RefusedRowError``: the template rejects it.
        """
        if self.takes_parts:
            return self._render(messages, **options)
        return self._render([self._join_parts(message) for message in messages], **options)

    def render_prompt(self, messages: Sequence[dict[str, Any]]) -> str:
        """Return a conversation that ends with a question, up to the answer's first character."""
        prompt = self.render_conversation(messages, add_generation_prompt=True)
        return prompt + self.frame.opening

    def between(self, messages: Sequence[dict[str, Any]], index: int) -> tuple[int, ...] | None:
        """Return the tokens between the answer in message ``index`` and the next answer.

        ``None``: the template writes earlier answers in another way than the last one.
        """
        answer = messages[index]["content"][0]["text"].strip()
        answered = self.render_conversation(messages[: index + 1])
        next_prompt = self.render_prompt(messages[: index + 2])
        frame = self.frame
        if not answered.endswith(answer + frame.behind) or not next_prompt.startswith(answered):
            return None
        before = f"{frame.tail}{frame.lead}{answer}"
        rest = frame.behind + next_prompt.removeprefix(answered)
        before_ids, whole_ids, rest_ids = self._tokens([before, before + rest, rest])
        cut = len(before_ids)
        ids = whole_ids[cut:] if whole_ids[:cut] == before_ids else rest_ids
        if ids[: len(frame.end)] != frame.end:  # only our end token closes the answer
            return None
        return ids[len(frame.end) :]

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

    def read_answer(self, ids: Sequence[int]) -> str:
        """Return generated tokens as text, without thoughts; empty for thoughts alone."""
        tokenizer = self.processor.tokenizer
        text = tokenizer.decode(ids, skip_special_tokens=True)
        spelled = tokenizer.decode(ids)  # marks around thoughts may be special tokens
        answer = strip_thoughts(self._open_thought + spelled)
        if answer == spelled:
            return text.strip()
        for token in tokenizer.all_special_tokens:
            answer = answer.replace(token, "")
        return answer.strip()

    def require_answers(self) -> None:
        """Raise ``ModelError`` where a finished answer does not continue the prompt for one."""
        frame = self.frame
        if not frame.difference:
            return
        arguments = ", ".join(list_arguments(self.processor))
        advice = ""
        if arguments:
            advice = f"set model.template_kwargs (arguments of this template: {arguments}), or "
        raise ModelError(
            "model.name: its chat template writes a finished answer in another way than the prompt "
            f"for one, so that it would not be trained as it is generated. {frame.difference} "
            f"To train it, {advice}change the model's chat_template.jinja"
        )

    @cached_property
    def _open_thought(self) -> str:
        """Return the end of a prompt from a thought on that it begins; empty: it begins none."""
        header = self.frame.header
        answer = strip_thoughts(header)
        return header.removeprefix(answer) if header.startswith(answer) else ""

    @cached_property
    def takes_parts(self) -> bool:
        """Return whether the template takes a message's content in parts; if not, as a string."""
        for content in ([{"type": "text", "text": ASKED}], ASKED):
            try:
                text = self._render([{"role": "user", "content": content}])
            except (RefusedRowError, ValueError) as error:
                if isinstance(content, str):
                    raise ModelError(
                        f"model.name: its chat template cannot render a question: {error}"
                    ) from error
                continue
            # Some templates write the parts as Python or JSON, or leave them out.
            if ASKED in text and not any(mark in text for mark in ("'type'", '"type"')):
                return not isinstance(content, str)
        raise ModelError("model.name: its chat template leaves out a question's text")

    @cached_property
    def frame(self) -> Frame:
        """Return the template text around an answer."""
        question = {"role": "user", "content": [{"type": "text", "text": ASKED}]}
        answer = {"role": "assistant", "content": [{"type": "text", "text": WORD}]}
        try:
            prompt = self.render_conversation([question], add_generation_prompt=True)
            whole = self.render_conversation([question, answer])
        except (RefusedRowError, ValueError) as error:
            raise ModelError(
                f"model.name: its chat template cannot render a question and answer: {error}"
            ) from error
        before, _, behind = whole.rpartition(WORD)
        lead, opening = _split_between(prompt, before)
        prompt += opening
        tail = prompt[self._end_of_control(prompt) :]
        tail_ids, behind_ids = self._tokens([tail, behind])
        return Frame(
            header=prompt.rpartition(ASKED)[2],
            opening=opening,
            tail=tail,
            tail_ids=tail_ids,
            lead=lead,
            behind=behind,
            end=self._end_tokens(behind_ids),
            difference=_compare(prompt, whole, before),
        )

    def _render(self, messages: Sequence[dict[str, Any]], **options: bool) -> str:
        from jinja2 import TemplateError

        try:
            return self.processor.apply_chat_template(list(messages), tokenize=False, **options)
        except (TemplateError, TypeError) as error:
            raise RefusedRowError("the chat template refuses it", str(error)) from error

    def _join_parts(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return a message with its content as a string, the image token for each image."""
        texts: list[str] = []
        for part in message["content"]:
            texts.append(part["text"] if part["type"] == "text" else self._image_text)
        return {**message, "content": "".join(texts)}

    @cached_property
    def _image_text(self) -> str:
        """Return the text of an image, which the processor replaces."""
        for name in ("boi_token", "image_token"):
            token = getattr(self.processor, name, None)
            if isinstance(token, str) and token:
                return QWEN_ENCLOSED if token == QWEN_IMAGE else token
        raise RefusedRowError("the chat template takes texts only")

    def _end_of_control(self, prompt: str) -> int:
        """Return the position behind a prompt's last control token."""
        position = 0
        for text in self._control.values():
            if text in prompt:
                position = max(position, prompt.rfind(text) + len(text))
        return position

    def _end_tokens(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        """Return the tokens up to the first control tokens.

        Without any, they are those of the visible text, and the tokenizer's end token.
        """
        is_control = [token in self._control for token in ids]
        if not any(is_control):
            text = self.processor.tokenizer.decode(ids).rstrip()
            return (*self._tokens([text])[0], self.processor.tokenizer.eos_token_id)
        first = is_control.index(True)
        rest = is_control[first:]
        size = rest.index(False) if False in rest else len(rest)
        return ids[: first + size]

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


def _split_between(prompt: str, before: str) -> tuple[str, str]:
    """Return lead and opening: the text between a prompt and an answer with ``before`` before it.

    It is the lead if it is spaces alone, which tokenizers join with the word that follows.
    """
    if not before.startswith(prompt):
        return "", ""
    text = before.removeprefix(prompt)
    if text.isspace() and "\n" not in text:
        return text, ""
    return "", text


def _compare(prompt: str, whole: str, before: str) -> str:
    """Describe how a finished conversation differs from its prompt; empty: at most in white space.

    LLaVA-OneVision's template writes a space more in finished turns.
    """
    if WORD in whole and "".join(before.split()) == "".join(prompt.split()):
        return ""
    return f"Prompt: {prompt[-SHOWN:]!r}. Finished: {whole[-SHOWN:]!r}."


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
