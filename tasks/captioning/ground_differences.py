"""Check that each half of a description matches its own image better than the other one (ours).

Reads ``DifferenceRow``, the pairs, and the images' CLIP vectors; writes ``CheckRow`` with the
smaller gap as score. Needs the weights that made the vectors, PyTorch and open_clip. Only the
affirmed part of a half is judged; one that denies a thing is skipped where the other half affirms
the rest: the lawn of "a lawn without a dog" is in both images.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.checks import (
    BOTH_UNGROUNDED,
    FIRST_UNGROUNDED,
    NOTHING_AFFIRMED,
    SECOND_UNGROUNDED,
)
from pairwright.schemas.config import GroundingConfig
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import CheckRow, DifferenceRow, Dropped, EmbeddingRow, Pairs
from pairwright.tasks.captioning.validators import PAIRS, check_text
from pairwright.tasks.models.text_scorer import SCORERS, count_scorers, name_texts
from pairwright.tasks.store.stage import Stage, Uses
from pairwright.tasks.store.vectors import Vectors
from pairwright.tasks.texts.words import affirmed, content_words, denies

Halves = tuple[str, str]
Floats = NDArray[np.floating[Any]]


def ground_differences(
    rows: Sequence[DifferenceRow],
    config: GroundingConfig,
    *,
    pairs: Pairs,
    vectors: Mapping[str, Vectors],
) -> Iterator[CheckRow | Dropped]:
    """Yield the outcome of the check for each description."""
    space = config.scorer
    if space not in vectors:
        raise ConfigError(
            f"grounding: needs {space} vectors: "
            f"add {space} to embedding.embedders, or disable grounding"
        )
    halves_by_row = {row.key: judged_halves(row) for row in rows}
    texts = _embed_halves(halves_by_row.values(), config)
    for row in rows:
        pair = pairs[row.subject]
        images = vectors[space].units_of([pair.first, pair.second])
        if images is None:
            yield Dropped(source_key=row.key, reason="an image has no CLIP vector")
            continue
        gaps: list[float | None] = []
        for side, half in enumerate(halves_by_row[row.key]):
            contrast = images[side] - images[1 - side]
            gaps.append(_measure_gap(texts[half], contrast) if half else None)
        score, why = judge_gaps(row, gaps, config)
        yield check_text(
            row,
            "grounded",
            score=score,
            why=why,
        )


def _embed_halves(all_halves: Iterable[Halves], config: GroundingConfig) -> Mapping[str, Floats]:
    """Return the vectors of all texts to judge, each embedded once."""
    texts: set[str] = set()
    for halves in all_halves:
        texts.update(half for half in halves if half)
    scorer = SCORERS.make(config.scorer, config)
    if not texts:
        return {}
    ordered = sorted(texts)
    return dict(zip(ordered, scorer.embed(ordered), strict=True))


def _measure_gap(text: Floats, contrast: Floats) -> float:
    """Return how much more similar a text is to its own image, rounded.

    The last digits depend on the batch size.
    """
    return round(float(text.astype(np.float64) @ contrast), 6)


def judged_halves(row: DifferenceRow) -> Halves:
    """Return the texts to compare with the images; empty for a half that is not judged."""
    if row.no_change:
        return "", ""
    first_half, second_half = row.halves
    first, second = affirmed(first_half), affirmed(second_half)
    first_words, second_words = set(content_words(first)), set(content_words(second))
    is_first_shared = denies(first_half) and first_words <= second_words
    is_second_shared = denies(second_half) and second_words <= first_words
    return "" if is_first_shared else first, "" if is_second_shared else second


def judge_gaps(
    row: DifferenceRow,
    gaps: Sequence[float | None],
    config: GroundingConfig,
) -> tuple[float, str]:
    """Return the score, and the reason of a failure.

    ``gaps`` of both halves, ``None`` for one that is not judged.
    """
    judged = [gap for gap in gaps if gap is not None]
    if not judged:
        return 0.0, "" if row.no_change else NOTHING_AFFIRMED
    is_first_low, is_second_low = (gap is not None and gap <= config.min_margin for gap in gaps)
    score = min(judged)
    if is_first_low and is_second_low:
        reason = BOTH_UNGROUNDED
    elif is_first_low:
        reason = FIRST_UNGROUNDED
    elif is_second_low:
        reason = SECOND_UNGROUNDED
    else:
        return score, ""
    return score, f"{reason} (grounding.min_margin={config.min_margin:g})"


STAGE = Stage(
    name="grounded",
    version=2,
    group="captioning",
    reads={"described": DifferenceRow},
    writes=CheckRow,
    function=ground_differences,
    config=lambda profile: profile.grounding.fill(
        clip=profile.embedding.clip if profile.grounding.enabled else None
    ),
    models=name_texts,
    processes=count_scorers,
    enabled=attrgetter("enabled"),
    uses=(PAIRS, Uses(table="embeddings", row=EmbeddingRow, kind="vectors", name="vectors")),
)
