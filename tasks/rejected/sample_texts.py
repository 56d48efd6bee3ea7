"""Make rejected texts by asking the writing model again: on-policy samples (ours).

Reads ``DifferenceRow``, its pair and the two images; writes ``RejectedTextRow`` by the maker
"sampled". Needs a served model that sees images. It is asked at a higher temperature and without
captions, so that its own mistakes show; for a person's text, or a trained model (``prompt``), with
the question of the pair's preference. Of the samples not known to be true the closest is taken: a
distant one may name another difference that is as true. The maker "blind" asks the same with the
images hidden (``blind``): what the model says then is what it expects, not what it sees.
"""

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from random import Random
from typing import Literal, NamedTuple

from pairwright.prompts import difference_prompts, difference_verbs, load_wordings
from pairwright.prompts.difference_prompts import READ_BACK, WITHOUT_CAPTIONS
from pairwright.schemas.config import SampledTextsConfig
from pairwright.schemas.replies import RefusedText
from pairwright.schemas.rows import (
    DifferenceRow,
    Dropped,
    ImageRow,
    Images,
    PairRow,
    Pairs,
    RejectedTextRow,
    make_key,
)
from pairwright.schemas.writing import BlindCondition
from pairwright.tasks.images.blind import blind_images
from pairwright.tasks.images.decode import RefusedImageError
from pairwright.tasks.rejected.check_texts import (
    KnownContent,
    is_as_true,
    rejected_row,
    text_cosine,
    truth_of,
)
from pairwright.tasks.serving.ask_rows import asking
from pairwright.tasks.serving.chat import Answer, Chat, Grammar, Question, seed_of
from pairwright.tasks.serving.read_response import read_text
from pairwright.tasks.store.stage import Stage, Uses
from pairwright.tasks.texts.differences import (
    Difference,
    read_difference,
    read_plain,
    refuse_length,
)

ASK = "ask_difference"
SETTING = "sampled_texts.max_tokens"
Condition = BlindCondition | Literal[""]


class SampledAnswer(NamedTuple):
    """Answer of the model, and how the images were hidden; empty: they were seen."""

    condition: Condition
    answer: Answer


@asking
async def sample_texts(
    row: DifferenceRow,
    chat: Chat,
    *,
    config: SampledTextsConfig,
    pairs: Pairs,
    images: Images,
) -> RejectedTextRow | Dropped:
    """Return one rejected sample per description, or ``Dropped`` if there is none."""
    return await _sample(row, chat, config, pairs=pairs, images=images, conditions=("",))


@asking
async def sample_blind(
    row: DifferenceRow,
    chat: Chat,
    *,
    config: SampledTextsConfig,
    pairs: Pairs,
    images: Images,
) -> RejectedTextRow | Dropped:
    """Return one rejected blind answer per description, or ``Dropped`` if there is none."""
    conditions = tuple(dict.fromkeys(config.blind))
    return await _sample(row, chat, config, pairs=pairs, images=images, conditions=conditions)


async def _sample(
    row: DifferenceRow,
    chat: Chat,
    config: SampledTextsConfig,
    *,
    pairs: Pairs,
    images: Images,
    conditions: Sequence[Condition],
) -> RejectedTextRow | Dropped:
    """Return the best rejected sample under some conditions; an empty one: the images are seen."""
    pair = pairs.get(row.subject)
    if pair is None or pair.first not in images or pair.second not in images:
        return Dropped(
            source_key=row.key,
            reason="image is missing",
            detail=row.subject,
        )
    question = _question(row, pair, images, config)
    samples: list[SampledAnswer] = []
    for condition in conditions:
        try:
            pixels = blind_images(question.images, condition) if condition else question.images
        except RefusedImageError as refused:
            return Dropped(source_key=row.key, reason=refused.reason, detail=refused.detail)
        for attempt in range(1, config.samples + 1):
            seed = seed_of(
                row.key,
                f"blind {condition}" if condition else "sampled",
                seed=config.seed,
                attempt=attempt,
            )
            answer = await chat.ask(replace(question, images=pixels, seed=seed))
            samples.append(SampledAnswer(condition, answer))
    return _choose(
        row,
        samples,
        config,
        truth=truth_of(row, pairs, images),
    )


def _question(
    row: DifferenceRow,
    pair: PairRow,
    images: Images,
    config: SampledTextsConfig,
) -> Question:
    if row.is_given or config.prompt == "preference":
        rng = Random(make_key("ask", config.seed, pair.key))  # as the preference's own prompt
        prompt = ASK
        text = load_wordings(ASK).say("given" if row.is_given else "ask", rng)
        grammar = None
    else:
        rng = Random(make_key("sampled verbs", config.seed, row.key))
        verbs = row.verbs or difference_prompts.draw_verbs(rng)
        instruction = difference_prompts.instruct(verbs, captions=None)
        prompt = instruction.prompt
        text = instruction.text
        grammar = Grammar(regex=difference_prompts.difference_regex())
    return Question(
        prompt=prompt,
        text=text,
        images=(images[pair.first].image, images[pair.second].image),
        max_tokens=config.max_tokens,
        temperature=config.temperature,
        grammar=grammar,
    )


def _read(answer: Answer, most: int, *, plain: bool) -> Difference | RefusedText:
    """Read an answer of at most so many tokens, and as many words."""
    text = read_text(answer)
    if isinstance(text, RefusedText):
        return text.by_tokens(f"{SETTING}={most}")
    read = read_plain(text) if plain else read_difference(text, difference_verbs())
    if isinstance(read, RefusedText):
        return read
    if plain:
        return read
    return refuse_length(read, most, SETTING) or read


def _choose(
    row: DifferenceRow,
    answers: Sequence[SampledAnswer],
    config: SampledTextsConfig,
    *,
    truth: KnownContent,
) -> RejectedTextRow | Dropped:
    """Return the closest sample that is not true, known wrong ones before unchecked ones."""
    read = [_read(sample.answer, config.max_tokens, plain=row.is_given) for sample in answers]
    samples = _check_samples(read, row, truth)
    if not samples:
        why = "; ".join(sample.reason for sample in read if isinstance(sample, RefusedText))
        return Dropped(
            source_key=row.key,
            reason="no sample is in the template",
            detail=why,
        )
    wrong = [text for text, true in samples.items() if not true]
    skipped = len(samples) - len(wrong)
    if not wrong:
        detail = f"{skipped} of {len(read)}"
        return Dropped(
            source_key=row.key,
            reason="all samples are as true",
            detail=detail,
        )

    def rank(text: str) -> tuple[bool, float, str]:
        return samples[text] is None, -text_cosine(row.text, text), text

    best = min(wrong, key=rank)
    texts = [write_sample(sample) for sample in read]
    condition = answers[texts.index(best)].condition
    note = f"the closest of {len(wrong)} samples"
    return rejected_row(
        row,
        best,
        maker="blind" if condition else "sampled",
        note=f"images {condition}, {note}" if condition else note,
        true=samples[best],
        skipped_true=skipped,
        served=tuple(sample.answer.served for sample in answers),
    )


def write_sample(sample: Difference | RefusedText) -> str:
    """Return a sample's text in the template; empty: it was refused."""
    if isinstance(sample, RefusedText):
        return ""
    if not sample.verbs:
        return sample.text
    halves = (sample.first_half, sample.second_half)
    return difference_prompts.fill_template(sample.verbs, *halves)


def _check_samples(
    read: Sequence[Difference | RefusedText], row: DifferenceRow, truth: KnownContent
) -> dict[str, bool | None]:
    """Return the truth of each different sample in the template; ``None``: unknown."""
    samples: dict[str, bool | None] = {}
    for sample in read:
        if isinstance(sample, RefusedText):
            continue
        halves = (sample.first_half, sample.second_half)
        samples[write_sample(sample)] = is_as_true(halves, (row,), truth)
    return samples


STAGE = Stage(
    name="sampled",
    version=8,
    group="rejected",
    reads={"differences": DifferenceRow},
    writes=RejectedTextRow,
    function=sample_texts,
    config=lambda profile: profile.complete(profile.sampled_texts),
    prompts=(ASK, *READ_BACK, WITHOUT_CAPTIONS["difference_from_captions"]),
    journal="answers",
    enabled=attrgetter("enabled"),
    uses=(
        Uses(table="pairs", row=PairRow),
        Uses(table="images", row=ImageRow, on="about", of="pairs"),
    ),
    rows_per_shard=100,
)
BLIND = replace(
    STAGE,
    name="blind",
    version=1,
    function=sample_blind,
    enabled=attrgetter("is_blind"),
)
