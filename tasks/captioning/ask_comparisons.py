"""Ask served models for the commonalities and differences (CaD) of each pair, in paper 003's two phases.

Phase 1 (``input: captions``): a language model reads both captions and sees no image. Phase 2: a vision model sees
both images, alone, with their captions (the paper's Table 6), or with what people wrote about the difference, which it
is to refine (section 3.3). A model that was trained on the first phase's conversations closes the loop as soon as it is
served and named in ``models``, and named by ``comparisons.model``: nothing else changes.

Reads ``PairRow`` and what the model is shown, writes ``ComparisonRow``. Needs a served model. Ours: an answer that will
not do is asked for again with another seed, and so is one that speaks of captions, since whoever is trained on it sees
the images alone; a pair without the captions or human differences that the model should read is dropped, not shown in
another way than was asked for. ``served`` of a row lists all tries, the one that was taken last.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from pairwright.prompts import load
from pairwright.schemas.comparisons import Comparison, RefusedComparison, read_comparison
from pairwright.schemas.config import ComparisonsConfig
from pairwright.schemas.refusals import has_tokens, names_captions
from pairwright.schemas.rows import CaptionRow, ComparisonRow, Dropped, Failed, ImageRow, PairRow, Row, Served, make_key
from pairwright.schemas.sentences import ends_short
from pairwright.tasks.captioning.comparison_grammar import comparison_grammar
from pairwright.tasks.captioning.conversations import nearly_match, retrieval_turns, sides_of_own_words, summary_turns
from pairwright.tasks.captioning.validators import refuse_text
from pairwright.tasks.serving.ask_rows import ask_rows
from pairwright.tasks.serving.chat import Answer, Chat, Question, seed_of
from pairwright.tasks.serving.untrusted import as_data
from pairwright.tasks.store.answers import Answers

PROMPTS = {
    "captions": "compare_captions",
    "images": "compare_images",
    "images and captions": "compare_images_captions",
    "images and differences": "refine_differences",
}
"""What the model is asked, by what it is shown."""


def ask_comparisons(
    rows: Sequence[PairRow],
    config: ComparisonsConfig,
    *,
    captions: Mapping[str, CaptionRow],
    images: Mapping[str, ImageRow],
    answers: Answers | None,
) -> Iterator[Row | Dropped | Failed]:
    """Yield one comparison per pair, or ``Dropped`` with the reason of the last of ``max_attempts`` refusals."""
    work = partial(_compare, config=config, captions=captions, images=images)
    yield from ask_rows(rows, work, config.served, answers=answers)


async def _compare(
    row: PairRow,
    chat: Chat,
    *,
    config: ComparisonsConfig,
    captions: Mapping[str, CaptionRow],
    images: Mapping[str, ImageRow],
) -> ComparisonRow | Dropped:
    told = _told(row, captions)
    question = _question(row, config, told=told, images=images)
    if isinstance(question, Dropped):
        return question
    tries: list[Served] = []
    while True:
        seed = seed_of(row.key, load(question.prompt), seed=config.seed, attempt=len(tries) + 1)
        answer = await chat.ask(replace(question, seed=seed))
        tries.append(answer.served)
        read = read_answer(answer)
        if isinstance(read, Comparison) and (why := refuse_text(read.text, config)):
            read = RefusedComparison(why, read.text)
        if isinstance(read, Comparison):
            return _row(row, config, read=read, told=told, tries=tuple(tries))
        if len(tries) == config.max_attempts:
            return Dropped(source_key=row.key, reason=read.reason, detail=read.detail)


def _told(row: PairRow, captions: Mapping[str, CaptionRow]) -> tuple[str, str]:
    """Return both captions, those that are missing empty."""
    first, second = (captions[key].text if key in captions else "" for key in (row.first, row.second))
    return first, second


def _question(
    row: PairRow, config: ComparisonsConfig, *, told: tuple[str, str], images: Mapping[str, ImageRow]
) -> Question | Dropped:
    """Return what the model is asked, its seed aside, or what is missing for it."""
    shown: tuple[bytes, ...] = ()
    first, second = map(as_data, told)
    human = " ".join(filter(None, map(as_data, row.human_differences)))
    if "captions" in config.input and not (first and second):
        return Dropped(source_key=row.key, reason="caption is missing", detail=row.second if first else row.first)
    if "differences" in config.input and not human:
        return Dropped(source_key=row.key, reason="no human difference to refine")
    if "images" in config.input:
        missing = next((key for key in (row.first, row.second) if key not in images), None)
        if missing:
            return Dropped(source_key=row.key, reason="image is missing", detail=missing)
        shown = (images[row.first].image, images[row.second].image)
    prompt = PROMPTS[config.input]
    text = load(prompt).render(first_caption=first, second_caption=second, differences=human)
    return Question(prompt=prompt, text=text, images=shown, max_tokens=config.max_tokens, grammar=comparison_grammar())


def read_answer(answer: Answer) -> Comparison | RefusedComparison:
    """Return the parts of the summary that a model gave, or why it will not do."""
    read = read_comparison(answer.text, finish_reason=answer.finish_reason)
    if isinstance(read, RefusedComparison):
        return read
    if ends_short(read.text):
        return RefusedComparison("cut off", read.text[-40:])
    if has_tokens(read.text):
        return RefusedComparison("control tokens", read.text[:60])
    return RefusedComparison("speaks of captions", read.text[:60]) if names_captions(read.text) else read


def _row(
    row: PairRow, config: ComparisonsConfig, *, read: Comparison, told: tuple[str, str], tries: tuple[Served, ...]
) -> ComparisonRow:
    sides = [] if nearly_match(told, config.max_caption_overlap) else sides_of_own_words(told)
    turns = (*summary_turns(read.text), *retrieval_turns(row, told, sides, seed=config.seed))
    return ComparisonRow(
        key=make_key("comparison", row.key, config.input, *(part for turn in turns for part in (turn.role, turn.text))),
        source_key=row.key,
        subject=row.key,
        text=read.text,
        commonalities=read.commonalities,
        differences=tuple(item.text for item in read.differences),
        axes=tuple(", ".join(item.axes) for item in read.differences),
        conversation=turns,
        model=tries[-1].model,
        shown=config.input,
        served=tries,
    )
