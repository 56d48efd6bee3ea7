"""Compare each pair: commonalities and differences (CaD) in a conversation of two turns, after paper 003.

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

from pairwright.prompts import load
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
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.captioning import validators
from pairwright.tasks.captioning.compose_comparison import compose_comparison
from pairwright.tasks.captioning.statements import SIDES, Side, describe
from pairwright.tasks.serving.ask_rows import asking
from pairwright.tasks.serving.chat import Answer, Chat, Grammar, Question
from pairwright.tasks.serving.untrusted import as_data, within_quotes
from pairwright.tasks.store.stage import Stage, Uses
from pairwright.tasks.texts.comparisons import Comparison, read_comparison
from pairwright.tasks.texts.words import content_words, ends_short, has_tokens, names_captions

ASKED = {
    "captions": "compare_captions",
    "images": "compare_images",
    "images and captions": "compare_images_captions",
    "images and differences": "refine_differences",
}
SUMMARISE, RETRIEVE = "compare_images", "retrieve_image"
WORD = re.compile(r"\w+")
Given = Mapping[str, ComparisonRow]  # the source's own comparisons, by pair
LABELS = (
    *(
        "Object types",
        "Object attributes",
        "Counting the objects",
        "Object actions",
        "Object locations",
    ),
    "Relative positions between objects",
)
"""The paper's axes by the words of its published summaries."""
MOST_COMMONALITIES = 6
IN_PARAGRAPH, IN_ITEM = (
    8,
    5,
)  # most full stops of a line, those of abbreviations and decimals included
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
    found = validators.compose_true(
        row, images, config, "comparison", compose_comparison, read_comparison
    )
    if isinstance(found, Dropped):
        return found
    graphs, written, parts, _ = found
    texts = validators.pair_captions(row, captions)
    sides: list[Side] = [
        side for side in SIDES if false_of_other(texts[side], graphs[side], graphs[1 - side])
    ]
    made = _row(row, config, replace(parts, text=written.text), texts=texts, sides=sides)
    return replace(made, key=row.key, model=config.writer)


def _row(
    row: PairRow,
    config: ComparisonsConfig,
    read: Comparison,
    *,
    texts: Sequence[str],
    sides: Sequence[Side],
) -> ComparisonRow:
    """Return the row with its conversation; ``sides``: images whose caption is false of the other image."""
    turns = [
        Turn(role="user", text=load(SUMMARISE).render()),
        Turn(role="assistant", text=read.text),
    ]
    if sides and not nearly_match(texts, config.max_caption_overlap):
        side = Random(make_key("retrieval", config.seed, row.key)).choice(sides)
        turns.append(
            Turn(role="user", text=load(RETRIEVE).render(caption=within_quotes(texts[side])))
        )
        turns.append(Turn(role="assistant", text="AB"[side]))
    return ComparisonRow(
        key=make_key(
            "comparison",
            row.key,
            config.input,
            *(part for turn in turns for part in (turn.role, turn.text)),
        ),
        source_key=row.key,
        subject=row.key,
        text=read.text,
        commonalities=read.commonalities,
        differences=tuple(item.text for item in read.differences),
        axes=tuple(", ".join(item.axes) for item in read.differences),
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
    """Return a comparison, the source's own where there is one, or ``Dropped`` with the reason of the last refusal."""
    if row.key in given:
        return replace(given[row.key], source_key=row.key)
    texts = validators.pair_captions(row, captions)
    first, second = map(as_data, texts)
    human = " ".join(filter(None, map(as_data, row.human_differences)))
    if "captions" in config.input and not (first and second):
        return Dropped(
            source_key=row.key,
            reason="caption is missing",
            detail=row.second if first else row.first,
        )
    if "differences" in config.input and not human:
        return Dropped(source_key=row.key, reason="no human difference to refine")
    shown = validators.pair_images(row.key, row, images) if "images" in config.input else ()
    if isinstance(shown, Dropped):
        return shown
    prompt = ASKED[config.input]
    text = load(prompt).render(first_caption=first, second_caption=second, differences=human)
    question = Question(
        prompt=prompt,
        text=text,
        images=shown,
        max_tokens=config.max_tokens,
        grammar=comparison_grammar(),
    )
    found = await validators.ask_again(
        chat,
        row,
        question,
        lambda answer: validators.validated(read_answer(answer), config),
        config,
        "comparisons",
    )
    if isinstance(found, Dropped):
        return found
    read, tries = found
    written = _row(row, config, read, texts=texts, sides=sides_of_own_words(texts))
    return replace(written, model=tries[-1].model, shown=config.input, served=tries)


def read_answer(answer: Answer) -> Comparison | RefusedText:
    """Return the parts of a model's summary, or why it is refused."""
    read = read_comparison(answer.text, finish_reason=answer.finish_reason)
    if isinstance(read, RefusedText):
        return read
    if ends_short(read.text):
        return RefusedText("cut off", read.text[-40:])
    why = (
        "control tokens"
        if has_tokens(read.text)
        else "speaks of captions"
        if names_captions(read.text)
        else ""
    )
    return RefusedText(why, read.text[:60]) if why else read


def nearly_match(captions: Sequence[str], most: float) -> bool:
    """Return whether a caption is missing, or both share more than ``most`` of the longer one's words."""
    words = [WORD.findall(text.lower()) for text in captions]
    first, second = map(set, words)
    return (
        not all(words)
        or words[0] == words[1]
        or len(first & second) / max(len(first), len(second), 1) > most
    )


def sides_of_own_words(captions: Sequence[str]) -> list[Side]:
    """Return the sides whose caption has a content word that the other lacks: the best guess without graphs."""
    words = [set(content_words(text)) for text in captions]
    return [side for side in SIDES if words[side] - words[1 - side]]


def false_of_other(caption: str, own: SceneGraph, other: SceneGraph) -> bool:
    """Return whether the caption mentions something that only its own photograph shows."""
    names = ("place", "light", "viewpoint")
    found = [getattr(own, name) for name in names if getattr(own, name) != getattr(other, name)]
    if len(own.objects) != len(other.objects):
        found.append(some(Selector(), len(own.objects)))
    for thing in own.objects:
        for selector in (describe(thing), describe(thing, "size")):
            if not selector.select(other):
                found += [noun(selector), noun(selector, 2)]
        for name in ("facing", "pose", "text"):
            value = getattr(thing, name)
            if value is not None and not describe(thing, name).select(other):
                found.append(f"{noun(describe(thing))} {surface(name, value)}")
    return any(
        re.search(rf"(?<!\w){re.escape(words)}(?!\w)", caption, re.IGNORECASE) for words in found
    )


@cache
def comparison_grammar() -> Grammar:
    """Return the grammar of a summary: the paper's published layout, for servers that constrain answers.

    Commonalities as a paragraph or a numbered list, an empty line, one to six numbered differences,
    each with the label of an axis (section 3.1). Full stops of a line are bounded, so that a model
    that runs away comes to its end; its characters are not, since counted repeats make automata
    large. No look-around, no reference: all engines of vLLM take it. The first word may follow a
    space, as with a SentencePiece vocabulary (Mixtral).
    """

    def line(most: int) -> str:
        return rf"[A-Z0-9\"'][^\n.!?]*{STOP}([^\n.!?]+{STOP}){{0,{most - 1}}}"

    def numbered(item: str, most: int) -> str:
        later = ""
        for number in range(most, 1, -1):
            later = rf"(\n{number}\. {item}{later})?"
        return rf"1\. {item}{later}"

    commonalities = rf"( {line(IN_PARAGRAPH)}|\n{numbered(line(IN_ITEM), MOST_COMMONALITIES)})"
    differences = numbered(f"({'|'.join(LABELS)}): {line(IN_ITEM)}", len(LABELS))
    return Grammar(regex=rf" ?Commonalities:{commonalities}\n\nDifferences:\n{differences}")


def _fit(stage: Stage, config: ComparisonsConfig) -> Stage:
    """Return the stage of a served writer: its answers are remembered, and it reads images with their bytes or not."""
    if not config.is_served:
        return stage
    asked = dict.fromkeys((ASKED[config.input], SUMMARISE, RETRIEVE))
    needed = ("images", "captions", "given") if "images" in config.input else ("captions", "given")
    uses = tuple(replace(use, without=()) for use in stage.uses if use.argument in needed)
    return replace(stage, prompts=tuple(asked), uses=uses, remembers=True)


STAGE = Stage(
    name="comparisons",
    version=6,
    group="captioning",
    reads={"pairs": PairRow},
    writes=ComparisonRow,
    function=compare_pairs,
    config=lambda profile: profile.complete(profile.comparisons),
    models=validators.name_validators,
    prompts=(
        "comparison_sentences",
        "comparison_layout",
        "comparison_layout_list",
        SUMMARISE,
        RETRIEVE,
    ),
    uses=(
        *validators.OF_PAIRS,
        Uses(table="given_comparisons", row=ComparisonRow, counts=True, name="given"),
    ),
    fit=_fit,
)
