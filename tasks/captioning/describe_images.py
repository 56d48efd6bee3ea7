"""Describe each image in detail.

Reads ``ImageRow``, writes ``CaptionRow``: composed from the image's scene graph, or the caption
that its source gave; or written by a served model that sees the image, where the source gave none.
``served`` of a row lists every try of the caption, the accepted one last, and the splitter's
request if the sentences are its own. The reasons for refusing an answer, and for keeping a model's
sentences, are ours.
"""

import re
from collections import Counter
from functools import partial
from random import Random

from pairwright.prompts import load_prompt
from pairwright.schemas.config import CaptionsConfig
from pairwright.schemas.control_tokens import refuse_control
from pairwright.schemas.replies import RefusedText
from pairwright.schemas.rows import CaptionRow, Dropped, ImageRow, Served, make_key
from pairwright.tasks.captioning.compose_caption import compose_caption
from pairwright.tasks.captioning.validators import ask_again, name_validators, refuse_text
from pairwright.tasks.serving.ask_rows import asking
from pairwright.tasks.serving.chat import Answer, Chat, Question, ask_in
from pairwright.tasks.serving.read_response import read_text
from pairwright.tasks.serving.split_text import SPLIT, ask_split, read_split
from pairwright.tasks.store.stage import Stage
from pairwright.tasks.texts.differences import NO_FULL_STOP
from pairwright.tasks.texts.words import count_words, split_by_rules

DESCRIBE = "describe_image"
COMPLETE = re.compile(r"[.!?…。！？।؟۔][\"'”’)\]»」』]*$")
MARKED = re.compile(r"(?:[-*#•>|]|\d{1,2}[.)]\s|```|[{\[<])")
"""Markup that opens a list, heading, table or code block."""
PREFACE = re.compile(
    r"(?:sure|certainly|of course|absolutely|okay|ok|here(?:['’]s| is| are))\b[^.]{0,80}[:!]"
    r"|(?:description|caption):",
    re.IGNORECASE,
)
LEAST_WORDS = 12
MOST_WORDS = 600
MAX_REPEATS = 2
"""Maximum repeats of one sentence."""
MIN_REPEATED_WORDS = 4
"""Minimum words of a sentence whose repeats are counted."""


def _compose(row: ImageRow, *, config: CaptionsConfig) -> CaptionRow | Dropped:
    """Return a caption from the scene graph or the source; without either, the image is dropped."""
    if row.graph is not None:
        parts = compose_caption(row.graph, Random(make_key("caption", config.seed, row.key)))
        sentences = tuple(part.text for part in parts)
        text = " ".join(sentences)
        reason = refuse_text(text, config)
        if reason:
            return Dropped(
                source_key=row.key,
                reason=reason,
                detail=text,
            )
        return _make_row(row, text, sentences, model=config.writer)
    caption = _given_caption(row)
    if caption:
        refused = refuse_control(caption)
        if refused:
            return _drop(row, refused)
        return _make_row(row, caption, split_by_rules(caption), model="given")
    return Dropped(
        source_key=row.key,
        reason="no scene graph",
        detail=row.name,
    )


def _given_caption(row: ImageRow) -> str:
    """Return the source's longest caption on one line; empty: none."""
    captions = [" ".join(text.split()) for text in row.captions]
    return max(captions, key=len, default="")


def _drop(row: ImageRow, refused: RefusedText) -> Dropped:
    return Dropped(
        source_key=row.key,
        reason=refused.reason,
        detail=refused.detail,
    )


def _make_row(
    row: ImageRow,
    text: str,
    sentences: tuple[str, ...],
    *,
    model: str,
    served: tuple[Served, ...] = (),
) -> CaptionRow:
    """Return the row; a served model's words are part of its key."""
    return CaptionRow(
        key=make_key("caption", row.key, text, *sentences) if served else row.key,
        source_key=row.key,
        subject=row.key,
        text=text,
        sentences=sentences,
        model=model,
        served=served,
    )


@partial(asking, compose=_compose)
async def describe_images(
    row: ImageRow,
    chat: Chat,
    *,
    config: CaptionsConfig,
) -> CaptionRow | Dropped:
    """Return a caption, or ``Dropped`` with the reason of the last refusal."""
    text = _given_caption(row)
    model = "given"
    served: tuple[Served, ...] = ()
    refused = refuse_control(text)
    if refused:
        return _drop(row, refused)
    if not text:
        written = await _ask_caption(row, chat, config)
        if isinstance(written, Dropped):
            return written
        text, served = written
        model = served[-1].model
    sentences = split_by_rules(text)
    if config.split == "served":
        max_tokens = 2 * config.max_tokens
        answer = await ask_split(
            chat,
            text,
            key=row.key,
            seed=config.seed,
            max_tokens=max_tokens,
        )
        split = read_split(answer, text)
        if answer and split:
            sentences = split
            served = (*served, answer.served)
    return _make_row(
        row,
        text,
        sentences,
        model=model,
        served=served,
    )


async def _ask_caption(
    row: ImageRow,
    chat: Chat,
    config: CaptionsConfig,
) -> tuple[str, tuple[Served, ...]] | Dropped:
    """Return a served model's caption on one line, and all attempts."""

    def parse_caption(answer: Answer) -> str | RefusedText:
        text = read_text(answer, config.language)
        if isinstance(text, RefusedText):
            return text
        refused = refuse_caption(text)
        if refused:
            return refused
        reason = refuse_text(text, config)
        if reason:
            return RefusedText(reason, text)
        return " ".join(text.split())

    question = Question(
        prompt=DESCRIBE,
        text=ask_in(load_prompt(DESCRIBE).render(), config.language),
        images=(row.image,),
        max_tokens=config.max_tokens,
    )
    return await ask_again(chat, row, question, parse_caption, config, "captions")


def refuse_caption(text: str) -> RefusedText | None:
    """Return the first reason to refuse a detailed description; its truth is not checked."""
    if not COMPLETE.search(text):
        return RefusedText(NO_FULL_STOP, text[-40:])
    return _refuse_form(text) or _refuse_repeats(text) or _refuse_count(text)


def _refuse_form(text: str) -> RefusedText | None:
    if "\n" in text or "\r" in text:
        return RefusedText("more than one paragraph", f"{len(text.splitlines())} lines")
    if MARKED.match(text) or PREFACE.match(text):
        return RefusedText("not a description", text[:80])
    return None


def _refuse_repeats(text: str) -> RefusedText | None:
    sentences = [sentence.lower() for sentence in split_by_rules(text)]
    counts = Counter(
        sentence for sentence in sentences if len(sentence.split()) >= MIN_REPEATED_WORDS
    )
    for sentence, count in counts.most_common(1):
        if count > MAX_REPEATS:
            return RefusedText("repeats itself", sentence)
    return None


def _refuse_count(text: str) -> RefusedText | None:
    count = count_words(text)
    if count < LEAST_WORDS:
        return RefusedText(f"too short (words={LEAST_WORDS})", text)
    if count > MOST_WORDS:
        return RefusedText(f"too long (words={MOST_WORDS})", f"{count} words")
    return None


def _name_prompts(config: CaptionsConfig) -> tuple[str, ...]:
    if not config.is_served:
        return ("caption_sentences",)
    return (DESCRIBE, SPLIT) if config.split == "served" else (DESCRIBE,)


def _name_unread(config: CaptionsConfig) -> tuple[str, ...]:
    return () if config.is_served else ("image",)


def _copies_captions(config: CaptionsConfig) -> bool:
    return not config.is_served


STAGE = Stage(
    name="captions",
    version=8,
    group="captioning",
    reads={"images": ImageRow, "aligned_images": ImageRow},
    writes=CaptionRow,
    function=describe_images,
    config=lambda profile: profile.complete(profile.captions),
    models=name_validators,
    prompts=_name_prompts,
    only_in=("pairs",),
    facts=_copies_captions,
    without=_name_unread,
    journal="answers",
)
