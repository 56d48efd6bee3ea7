"""Check that each half of a description matches its own image better than the other one (ours).

Reads ``DifferenceRow``, the pairs, and the images' CLIP vectors; writes ``CheckRow`` with the
smaller gap as score. Needs the weights that made the vectors, PyTorch and open_clip. Only the
affirmed part of a half is judged; one that denies a thing is skipped where the other half affirms
the rest: the lawn of "a lawn without a dog" is in both images.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter

import numpy as np

from pairwright.schemas.checks import (
    BOTH_UNGROUNDED,
    FIRST_UNGROUNDED,
    NOTHING_AFFIRMED,
    SECOND_UNGROUNDED,
)
from pairwright.schemas.config import GroundingConfig
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import CheckRow, DifferenceRow, Dropped, EmbeddingRow, Pairs
from pairwright.tasks.captioning.validators import PAIRS, check_row
from pairwright.tasks.models.devices import count_processes
from pairwright.tasks.models.text_scorer import OpenClipTexts, name_texts
from pairwright.tasks.store.stage import Stage, Uses
from pairwright.tasks.store.vectors import Vectors
from pairwright.tasks.texts.words import affirmed, content_words, denies

SPACE = "clip"
Halves = tuple[str, str]


def ground_differences(
    rows: Sequence[DifferenceRow],
    config: GroundingConfig,
    *,
    pairs: Pairs,
    vectors: Mapping[str, Vectors],
) -> Iterator[CheckRow | Dropped]:
    """Yield the outcome of the check for each description."""
    if SPACE not in vectors:
        raise ConfigError(
            f"grounding: needs {SPACE} vectors: add {SPACE} to embedding.embedders, or disable "
            f"grounding"
        )
    judged = {row.key: judged_halves(row) for row in rows}
    said = sorted({half for halves in judged.values() for half in halves if half})
    scorer = OpenClipTexts(config=config.encoder)
    texts = dict(zip(said, scorer.embed(said), strict=True)) if said else {}
    for row in rows:
        pair = pairs[row.subject]
        images = vectors[SPACE].units_of([pair.first, pair.second])
        if images is None:
            yield Dropped(source_key=row.key, reason="an image has no CLIP vector")
        else:
            halves = enumerate(judged[row.key])
            # Rounded, since the last digits depend on the batch size.
            gaps = [
                round(float(texts[half].astype(np.float64) @ (images[side] - images[1 - side])), 6)
                if half
                else None
                for side, half in halves
            ]
            score, why = judge_gaps(row, gaps, config)
            yield check_row(row, "grounded", score=score, why=why)


def judged_halves(row: DifferenceRow) -> Halves:
    """Return the texts to compare with the images; empty for a half that is not judged."""
    if row.no_change:
        return "", ""
    texts = [affirmed(half) for half in row.halves]
    words = [set(content_words(text)) for text in texts]
    first, second = (
        "" if denies(row.halves[n]) and words[n] <= words[1 - n] else texts[n] for n in (0, 1)
    )
    return first, second


def judge_gaps(
    row: DifferenceRow, gaps: Sequence[float | None], config: GroundingConfig
) -> tuple[float, str]:
    """Return the score, and the reason of a failure; ``gaps`` of both halves, ``None`` for one that is not judged."""
    known = [gap for gap in gaps if gap is not None]
    if not known:
        return 0.0, "" if row.no_change else NOTHING_AFFIRMED
    first, second = (gap is not None and gap <= config.min_margin for gap in gaps)
    why = (
        BOTH_UNGROUNDED
        if first and second
        else FIRST_UNGROUNDED
        if first
        else SECOND_UNGROUNDED
        if second
        else ""
    )
    return min(known), f"{why} (grounding.min_margin={config.min_margin:g})" if why else ""


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
    processes=partial(count_processes, attrgetter("enabled")),
    enabled=attrgetter("enabled"),
    uses=(PAIRS, Uses(table="embeddings", row=EmbeddingRow, kind="vectors", name="vectors")),
)
