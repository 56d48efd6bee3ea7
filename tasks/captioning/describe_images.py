"""Describe each image in detail.

Reads ``ImageRow``, writes ``CaptionRow``: composed from the image's scene graph, or the caption
that its source gave; or written by a served model that sees the image, where the source gave none.
``served`` of a row lists every try of the caption, the accepted one last, and the splitter's
request if the sentences are its own. The reasons for refusing an answer, and for keeping a model's
sentences, are ours.
"""

import re
from collections import Counter
from dataclasses import replace
from functools import partial
from random import Random

from pairwright.prompts import load
from pairwright.schemas.config import CaptionsConfig
from pairwright.schemas.replies import RefusedText
from pairwright.schemas.rows import CaptionRow, Dropped, ImageRow, Served, make_key
from pairwright.tasks.captioning.compose_caption import compose_caption
from pairwright.tasks.captioning.validators import ask_again, name_validators, refuse_text
from pairwright.tasks.serving.ask_rows import asking
from pairwright.tasks.serving.chat import Answer, Chat, Question
from pairwright.tasks.serving.split_text import SPLIT, ask_split
from pairwright.tasks.store.stage import Stage
from pairwright.tasks.texts.split_sentences import read_sentences
from pairwright.tasks.texts.words import declines, repeats_itself, split_by_rules

DESCRIBE = "describe_image"
COMPLETE = re.compile(r"[.!?…。][\"'”’)\]]*$")
MARKED = re.compile(
    r"(?:[-*#•>|]|\d{1,2}[.)]\s|```|[{\[<])"
)  # markup that opens a list, heading, table or code block
PREFACE = re.compile(
    r"(?:sure|certainly|of course|absolutely|okay|ok|here(?:['’]s| is| are))\b[^.]{0,80}[:!]"
    r"|(?:description|caption):",
    re.IGNORECASE,
)
LEAST_WORDS, MOST_WORDS = 12, 600
MOST_REPEATS, LONG = (
    2,
    4,
)  # most repeats of one sentence, and the words that a sentence needs to be counted


def _compose(row: ImageRow, *, config: CaptionsConfig) -> CaptionRow | Dropped:
    """Return a caption from the scene graph or the source; without either, the image is dropped."""
    if row.graph is not None:
        parts = compose_caption(row.graph, Random(make_key("caption", config.seed, row.key)))
        text = " ".join(part.text for part in parts)
        if why := refuse_text(text, config):
            return Dropped(source_key=row.key, reason=why, detail=text)
        return _row(row, text, tuple(part.text for part in parts), model=config.writer)
    if given := _given(row):
        return _row(row, given, split_by_rules(given), model="given")
    return Dropped(source_key=row.key, reason="no scene graph", detail=row.name)


def _given(row: ImageRow) -> str:
    """Return the source's longest caption on one line; empty: none."""
    return max((" ".join(text.split()) for text in row.captions), key=len, default="")


def _row(
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
    row: ImageRow, chat: Chat, *, config: CaptionsConfig
) -> CaptionRow | Dropped:
    """Return a caption, or ``Dropped`` with the reason of the last refusal."""

    def read(answer: Answer) -> str | RefusedText:
        if refused := refuse_caption(answer.text, finish_reason=answer.finish_reason):
            return refused
        why = refuse_text(answer.text, config)
        return RefusedText(why, answer.text) if why else " ".join(answer.text.split())

    text, model, served = _given(row), "given", ()
    if not text:
        prompt = load(DESCRIBE).render()
        question = Question(
            prompt=DESCRIBE, text=prompt, images=(row.image,), max_tokens=config.max_tokens
        )
        found = await ask_again(chat, row, question, read, config, "captions")
        if isinstance(found, Dropped):
            return found
        text, served = found
        model = served[-1].model
    sentences = split_by_rules(text)
    if config.split == "served":
        answer = await ask_split(
            chat, text, key=row.key, seed=config.seed, max_tokens=2 * config.max_tokens
        )
        if (
            answer
            and answer.finish_reason != "length"
            and (own := read_sentences(answer.text, text))
        ):
            sentences, served = own, (*served, answer.served)
    return _row(row, text, sentences, model=model, served=served)


def refuse_caption(text: str, *, finish_reason: str = "stop") -> RefusedText | None:
    """Return the first reason to refuse a text as a detailed description; its truth is not checked."""
    text = text.strip()
    if not text:
        return RefusedText("empty")
    if finish_reason == "length" or not COMPLETE.search(text):
        return RefusedText("cut off", finish_reason if finish_reason == "length" else text[-40:])
    if declines(text):
        return RefusedText("the model declines", text[:80])
    if "\n" in text or "\r" in text:
        return RefusedText("more than one paragraph", f"{len(text.splitlines())} lines")
    if MARKED.match(text) or PREFACE.match(text):
        return RefusedText("not a description", text[:80])
    if repeats_itself(text):
        return RefusedText("repeats itself", text[-80:])
    sentences = Counter(
        sentence.lower() for sentence in split_by_rules(text) if len(sentence.split()) >= LONG
    )
    if sentences and (most := sentences.most_common(1)[0])[1] > MOST_REPEATS:
        return RefusedText("repeats itself", most[0])
    count = len(text.split())
    if count < LEAST_WORDS:
        return RefusedText(f"too short (words={LEAST_WORDS})", text)
    return (
        RefusedText(f"too long (words={MOST_WORDS})", f"{count} words")
        if count > MOST_WORDS
        else None
    )


def _fit(stage: Stage, config: CaptionsConfig) -> Stage:
    if not config.is_served:
        return stage
    asked = (DESCRIBE, SPLIT) if config.split == "served" else (DESCRIBE,)
    return replace(stage, prompts=asked, without=(), remembers=True)


STAGE = Stage(
    name="captions",
    version=5,
    group="captioning",
    reads={"images": ImageRow},
    writes=CaptionRow,
    function=describe_images,
    config=lambda profile: profile.complete(profile.captions),
    models=name_validators,
    prompts=("caption_sentences",),
    only_in=("pairs",),
    without=("image",),
    fit=_fit,
)
