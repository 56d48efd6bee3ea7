"""Write the conversations of a written table with their images, for training.

Reads ``PairRow`` and texts about it or its images; writes ``PreferenceRow`` without a rejected
side, in the pair's split. A caption is repeated for each pair of its image; equal rows count once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pairwright.schemas.rows import CaptionRow, ImageRow, Images, PairRow, PreferenceRow, SplitRow
from pairwright.schemas.section import Section
from pairwright.schemas.training import CONVERSATIONS
from pairwright.tasks.store.stage import Stage, Uses
from pairwright.tasks.texts.conversations import ASK, DESCRIBE, TellingRow, converse


def write_conversations(
    rows: Sequence[PairRow],
    config: Section,
    *,
    told: Mapping[str, tuple[TellingRow, ...]],
    splits: Mapping[str, SplitRow],
    images: Images,
) -> Iterator[PreferenceRow]:
    """Yield the conversations about each pair, or about its images."""
    del config  # has no fields
    for pair in rows:
        for subject in (pair.key, pair.first, pair.second):
            for row in told.get(subject, ()):
                keys = [row.subject]
                if row.subject == pair.key:
                    keys = [pair.first, pair.second]
                row_images = [images[key] for key in keys]
                yield converse(row, pair, row_images, splits[pair.key])


STAGE = Stage(
    name=CONVERSATIONS,
    group="training",
    reads={"pairs": PairRow},
    writes=PreferenceRow,
    function=write_conversations,
    config=Section,
    prompts=(ASK, DESCRIBE),
    uses=(
        Uses(table="splits", row=SplitRow, counts=True),
        Uses(table="images", row=ImageRow, on="about", without=("captions", "graph")),
    ),
    rows_per_shard=25,
)


def stage_of(table: Stage) -> Stage:
    """Return the stage for the rows of a table, given its stage."""
    on = "about" if table.writes is CaptionRow else "subject"
    told = Uses(table=table.name, row=table.writes, kind="many", on=on, counts=True, name="told")
    return replace(STAGE, uses=(*STAGE.uses, told))
