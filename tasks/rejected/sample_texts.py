"""Make rejected texts by asking the writing model again: on-policy samples (ours).

Reads ``DifferenceRow``, its pair and the two images; writes ``RejectedTextRow`` by the maker
"sampled". Needs a served model that sees images. It is asked at a higher temperature and without
captions, so that its own mistakes show; for a person's text, or a trained model (``prompt``), with
the question of the pair's preference. Of the samples not known to be true the closest is taken: a
distant one may name another difference that is as true.
"""

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from random import Random

from pairwright.prompts import difference_prompts, difference_verbs, load_wordings
from pairwright.prompts.difference_prompts import TEMPLATE, WITHOUT_CAPTIONS
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
from pairwright.tasks.rejected.check_texts import (
    KnownContent,
    is_as_true,
    rejected_row,
    text_cosine,
    truth_of,
)
from pairwright.tasks.serving.ask_rows import asking
from pairwright.tasks.serving.chat import Answer, Chat, Grammar, Question, seed_of
from pairwright.tasks.store.stage import Stage, Uses
from pairwright.tasks.texts.differences import (
    Difference,
    read_difference,
    read_plain,
    refuse_length,
)
from pairwright.tasks.texts.words import repeats_itself

ASK, SETTING = "ask_difference", "sampled_texts.max_tokens"


@asking
async def sample_texts(
    row: DifferenceRow, chat: Chat, *, config: SampledTextsConfig, pairs: Pairs, images: Images
) -> RejectedTextRow | Dropped:
    """Return one rejected sample per description, or ``Dropped`` if there is none."""
    pair = pairs.get(row.subject)
    if pair is None or pair.first not in images or pair.second not in images:
        return Dropped(source_key=row.key, reason="image is missing", detail=row.subject)
    if row.is_given or config.prompt == "preference":
        rng = Random(make_key("ask", config.seed, pair.key))  # as the preference's own prompt
        prompt, text, grammar = (
            ASK,
            load_wordings(ASK).say("given" if row.is_given else "ask", rng),
            None,
        )
    else:
        rng = Random(make_key("sampled verbs", config.seed, row.key))
        instruction = difference_prompts.instruct(
            row.verbs or difference_prompts.draw_verbs(rng), captions=None
        )
        prompt, text, grammar = (
            instruction.prompt,
            instruction.text,
            Grammar(regex=difference_prompts.difference_regex()),
        )
    question = Question(
        prompt=prompt,
        text=text,
        images=(images[pair.first].image, images[pair.second].image),
        max_tokens=config.max_tokens,
        temperature=config.temperature,
        grammar=grammar,
    )
    seeds = [
        seed_of(row.key, "sampled", seed=config.seed, attempt=n)
        for n in range(1, config.samples + 1)
    ]
    answers = [await chat.ask(replace(question, seed=seed)) for seed in seeds]
    return _choose(row, answers, config, truth=truth_of(row, pairs, images))


def _read(answer: Answer, most: int, *, plain: bool) -> Difference | RefusedText:
    """Read an answer of at most so many tokens, and as many words."""
    if repeats_itself(answer.text):
        return RefusedText("off the template", "repeats itself")
    if plain:
        read = read_plain(answer.text, finish_reason=answer.finish_reason)
    else:
        read = read_difference(answer.text, difference_verbs(), finish_reason=answer.finish_reason)
    if isinstance(read, RefusedText):
        return read.by_tokens(answer.finish_reason, f"{SETTING}={most}")
    return read if plain else refuse_length(read, most, SETTING) or read


def _choose(
    row: DifferenceRow,
    answers: Sequence[Answer],
    config: SampledTextsConfig,
    *,
    truth: KnownContent,
) -> RejectedTextRow | Dropped:
    """Return the closest sample that is not true, known wrong ones before unchecked ones."""
    read = [_read(answer, config.max_tokens, plain=row.is_given) for answer in answers]
    samples: dict[str, bool | None] = {}
    for one in read:
        if isinstance(one, Difference):
            halves = (one.first_half, one.second_half)
            text = difference_prompts.fill_template(one.verbs, *halves) if one.verbs else one.text
            samples[text] = is_as_true(halves, (row,), truth)
    if not samples:
        why = "; ".join(one.reason for one in read if isinstance(one, RefusedText))
        return Dropped(source_key=row.key, reason="no sample is in the template", detail=why)
    wrong = [text for text, true in samples.items() if not true]
    skipped = len(samples) - len(wrong)
    if not wrong:
        return Dropped(
            source_key=row.key, reason="all samples are as true", detail=f"{skipped} of {len(read)}"
        )
    served = tuple(answer.served for answer in answers)
    best = min(wrong, key=lambda text: (samples[text] is None, -text_cosine(row.text, text), text))
    note = f"the closest of {len(wrong)} samples"
    return rejected_row(
        row,
        best,
        maker="sampled",
        note=note,
        true=samples[best],
        skipped_true=skipped,
        served=served,
    )


STAGE = Stage(
    name="sampled",
    version=6,
    group="rejected",
    reads={"differences": DifferenceRow},
    writes=RejectedTextRow,
    function=sample_texts,
    config=lambda profile: profile.complete(profile.sampled_texts),
    prompts=(ASK, TEMPLATE, WITHOUT_CAPTIONS["difference_from_captions"]),
    remembers=True,
    enabled=attrgetter("is_served"),
    uses=(
        Uses(table="pairs", row=PairRow),
        Uses(table="images", row=ImageRow, on="images", of="pairs"),
    ),
    rows_per_shard=100,
)
