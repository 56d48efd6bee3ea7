"""Compare each pair: commonalities and differences (CaD), a conversation of two turns (paper 003).

Reads ``PairRow`` and captions, writes ``ComparisonRow``: composed from scene graphs and checked
against them, or by a served model that reads both captions, or sees both images, alone, with
captions (Table 6), or with people's texts about the difference (3.3). The second turn, which image
a caption belongs to, is left out where captions nearly match, or neither is known to fit its own
image only (ours).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from random import Random

from pairwright.prompts import load_prompt
from pairwright.schemas.claims import Selector
from pairwright.schemas.config import ComparisonsConfig
from pairwright.schemas.phrases import noun, some, surface
from pairwright.schemas.replies import RefusedText
from pairwright.schemas.rows import (
    NO_ROWS,
    Captions,
    ComparisonRow,
    Dropped,
    Images,
    PairRow,
    Turn,
    make_key,
)
from pairwright.schemas.scene import SceneGraph, SceneObject
from pairwright.tasks.captioning import validators
from pairwright.tasks.captioning.compose_comparison import compose_comparison
from pairwright.tasks.captioning.statements import SIDES, Side, describe_object
from pairwright.tasks.serving.ask_rows import asking
from pairwright.tasks.serving.chat import Answer, Chat, Grammar, Question
from pairwright.tasks.serving.read_response import read_text
from pairwright.tasks.serving.untrusted import as_data, within_quotes
from pairwright.tasks.store.stage import Stage, Uses
from pairwright.tasks.texts.comparisons import Comparison, read_comparison
from pairwright.tasks.texts.differences import NO_FULL_STOP
from pairwright.tasks.texts.words import content_words, ends_short, names_captions

ASKED = {
    "captions": "compare_captions",
    "images": "compare_images",
    "images and captions": "compare_images_captions",
    "images and differences": "refine_differences",
}
"""Prompts by the input of the writer."""
SUMMARISE = "compare_images"
RETRIEVE = "retrieve_image"
WORD = re.compile(r"\w+")
Given = Mapping[str, ComparisonRow]  # the source's own comparisons, by pair
LABELS = (
    "Object types",
    "Object attributes",
    "Counting the objects",
    "Object actions",
    "Object locations",
    "Relative positions between objects",
)
"""The paper's axes by the words of its published summaries."""
MAX_COMMONALITIES = 6
MAX_STOPS_IN_PARAGRAPH = 8
"""Maximum full stops of a line, those of abbreviations and decimals included."""
MAX_STOPS_IN_ITEM = 5
STOP = r"[.!?][\"')]?"


def _compose(
    row: PairRow,
    *,
    config: ComparisonsConfig,
    captions: Captions,
    images: Images = NO_ROWS,
    given: Given = NO_ROWS,
) -> ComparisonRow | Dropped:
    if row.key in given:
        return replace(given[row.key], source_key=row.key)
    composed = validators.compose_true(
        row, images, config, "comparison", compose_comparison, read_comparison
    )
    if isinstance(composed, Dropped):
        return composed
    graphs, statement, parts, _ = composed
    parts = replace(parts, text=statement.text)
    texts = validators.pair_captions(row, captions)
    sides: list[Side] = [
        side for side in SIDES if false_of_other(texts[side], graphs[side], graphs[1 - side])
    ]
    comparison = _make_row(
        row,
        config,
        parts,
        texts=texts,
        sides=sides,
    )
    return replace(comparison, key=row.key, model=config.writer)


def _make_row(
    row: PairRow,
    config: ComparisonsConfig,
    parts: Comparison,
    *,
    texts: Sequence[str],
    sides: Sequence[Side],
) -> ComparisonRow:
    """Return the row with its conversation.

    ``sides``: images whose caption is false of the other image.
    """
    turns = [
        Turn(role="user", text=load_prompt(SUMMARISE).render()),
        Turn(role="assistant", text=parts.text),
    ]
    if sides and not nearly_match(texts, config.max_caption_overlap):
        side = Random(make_key("retrieval", config.seed, row.key)).choice(sides)
        question = load_prompt(RETRIEVE).render(caption=within_quotes(texts[side]))
        turns.append(Turn(role="user", text=question))
        turns.append(Turn(role="assistant", text="AB"[side]))
    key_parts: list[str] = []
    for turn in turns:
        key_parts += [turn.role, turn.text]
    return ComparisonRow(
        key=make_key("comparison", row.key, config.input, *key_parts),
        source_key=row.key,
        subject=row.key,
        text=parts.text,
        commonalities=parts.commonalities,
        differences=tuple(item.text for item in parts.differences),
        axes=tuple(", ".join(item.axes) for item in parts.differences),
        conversation=tuple(turns),
        model="",
    )


@partial(asking, compose=_compose)
async def compare_pairs(
    row: PairRow,
    chat: Chat,
    *,
    config: ComparisonsConfig,
    captions: Captions,
    images: Images = NO_ROWS,
    given: Given = NO_ROWS,
) -> ComparisonRow | Dropped:
    """Return the source's comparison, or a new one, or the reason of the last refusal."""
    if row.key in given:
        return replace(given[row.key], source_key=row.key)
    question = _make_question(row, config, captions, images)
    if isinstance(question, Dropped):
        return question

    def parse_summary(answer: Answer) -> Comparison | RefusedText:
        return validators.validated(read_summary(answer), config)

    written = await validators.ask_again(chat, row, question, parse_summary, config, "comparisons")
    if isinstance(written, Dropped):
        return written
    parts, tries = written
    texts = validators.pair_captions(row, captions)
    sides = sides_of_own_words(texts)
    comparison = _make_row(
        row,
        config,
        parts,
        texts=texts,
        sides=sides,
    )
    return replace(
        comparison,
        model=tries[-1].model,
        shown=config.input,
        served=tries,
    )


def _make_question(
    row: PairRow,
    config: ComparisonsConfig,
    captions: Captions,
    images: Images,
) -> Question | Dropped:
    """Return the question about a pair, or which of its inputs is missing."""
    first, second = map(as_data, validators.pair_captions(row, captions))
    human_texts = map(as_data, row.human_differences)
    human = " ".join(text for text in human_texts if text)
    if "captions" in config.input and not (first and second):
        image_key = row.second if first else row.first
        return Dropped(
            source_key=row.key,
            reason="caption is missing",
            detail=image_key,
        )
    if "differences" in config.input and not human:
        return Dropped(source_key=row.key, reason="no human difference to refine")
    pair_images: tuple[bytes, ...] | Dropped = ()
    if "images" in config.input:
        pair_images = validators.pair_images(row.key, row, images)
    if isinstance(pair_images, Dropped):
        return pair_images
    prompt = ASKED[config.input]
    return Question(
        prompt=prompt,
        text=load_prompt(prompt).render(
            first_caption=first,
            second_caption=second,
            differences=human,
        ),
        images=pair_images,
        max_tokens=config.max_tokens,
        grammar=comparison_grammar(),
    )


def read_summary(answer: Answer) -> Comparison | RefusedText:
    """Return the parts of a model's summary, or why it is refused."""
    text = read_text(answer)
    if isinstance(text, RefusedText):
        return text
    parts = read_comparison(text)
    if isinstance(parts, RefusedText):
        return parts
    if ends_short(parts.text):
        return RefusedText(NO_FULL_STOP, parts.text[-40:])
    if names_captions(parts.text):
        return RefusedText("speaks of captions", parts.text[:60])
    return parts


def nearly_match(captions: Sequence[str], max_overlap: float) -> bool:
    """Return whether a caption is missing, or the captions share too many words.

    ``max_overlap``: maximum share of the longer one's different words.
    """
    words = [WORD.findall(text.lower()) for text in captions]
    if not all(words) or words[0] == words[1]:
        return True
    first, second = map(set, words)
    overlap = len(first & second) / max(len(first), len(second), 1)
    return overlap > max_overlap


def sides_of_own_words(captions: Sequence[str]) -> list[Side]:
    """Return the sides whose caption has a content word that the other lacks.

    This is the best guess without graphs.
    """
    words = [set(content_words(text)) for text in captions]
    return [side for side in SIDES if words[side] - words[1 - side]]


def false_of_other(
    caption: str,
    own: SceneGraph,
    other: SceneGraph,
) -> bool:
    """Return whether the caption mentions something that only its own photograph shows."""
    phrases: list[str] = []
    for name in ("place", "light", "viewpoint"):
        if getattr(own, name) != getattr(other, name):
            phrases.append(getattr(own, name))
    if len(own.objects) != len(other.objects):
        phrases.append(some(Selector(), len(own.objects)))
    for obj in own.objects:
        phrases += _distinctive_phrases(obj, other)
    return any(
        re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", caption, re.IGNORECASE)
        for phrase in phrases
    )


def _distinctive_phrases(obj: SceneObject, other: SceneGraph) -> list[str]:
    """Return phrases for an object that describe no object of the other photograph."""
    phrases: list[str] = []
    for selector in (describe_object(obj), describe_object(obj, "size")):
        if not selector.select(other):
            phrases += [noun(selector), noun(selector, 2)]
    for name in ("facing", "pose", "text"):
        value = getattr(obj, name)
        if value is not None and not describe_object(obj, name).select(other):
            phrases.append(f"{noun(describe_object(obj))} {surface(name, value)}")
    return phrases


@cache
def comparison_grammar() -> Grammar:
    """Return the grammar of a summary in the paper's published layout, for structured output.

    Commonalities as a paragraph or a numbered list, an empty line, one to six numbered differences,
    each with the label of an axis (section 3.1). Full stops of a line are bounded, so that a model
    that does not stop comes to its end; its characters are not, since counted repeats make automata
    large. No look-around, no reference: all engines of vLLM take it. The first word may follow a
    space, as with a SentencePiece vocabulary (Mixtral).
    """

    def line(max_stops: int) -> str:
        return rf"[A-Z0-9\"'][^\n.!?]*{STOP}([^\n.!?]+{STOP}){{0,{max_stops - 1}}}"

    def list_pattern(item: str, max_items: int) -> str:
        later = ""
        for number in range(max_items, 1, -1):
            later = rf"(\n{number}\. {item}{later})?"
        return rf"1\. {item}{later}"

    paragraph = line(MAX_STOPS_IN_PARAGRAPH)
    item = line(MAX_STOPS_IN_ITEM)
    commonalities = rf"( {paragraph}|\n{list_pattern(item, MAX_COMMONALITIES)})"
    differences = list_pattern(f"({'|'.join(LABELS)}): {item}", len(LABELS))
    return Grammar(regex=rf" ?Commonalities:{commonalities}\n\nDifferences:\n{differences}")


def _name_prompts(config: ComparisonsConfig) -> tuple[str, ...]:
    if config.is_served:
        return tuple(dict.fromkeys((ASKED[config.input], SUMMARISE, RETRIEVE)))
    layouts = ("comparison_layout", "comparison_layout_list")
    return ("comparison_sentences", *layouts, SUMMARISE, RETRIEVE)


STAGE = Stage(
    name="comparisons",
    version=9,
    group="captioning",
    reads={"pairs": PairRow},
    writes=ComparisonRow,
    function=compare_pairs,
    config=lambda profile: profile.complete(profile.comparisons),
    models=validators.name_validators,
    prompts=_name_prompts,
    uses=(
        *validators.OF_PAIRS,
        Uses(table="given_comparisons", row=ComparisonRow, counts=True, name="given"),
    ),
    journal="answers",
)
