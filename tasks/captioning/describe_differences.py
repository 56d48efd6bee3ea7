"""Describe the difference of each pair by an implicit-change description.

Reads ``PairRow`` and the images' scene graphs, writes ``DifferenceRow``: composed from the graphs, passed through the
validator that served models pass, and checked against the graphs (CPU, no network); or written by a served model that
sees both images and reads their captions (``ask_differences``).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pairwright.prompts import difference_verbs
from pairwright.prompts.differences import PROMPTS
from pairwright.schemas.claims import CLAIMS, Graphs, all_hold
from pairwright.schemas.config import DifferencesConfig
from pairwright.schemas.differences import Difference, read_difference
from pairwright.schemas.rows import CaptionRow, DifferenceRow, Dropped, Failed, ImageRow, PairRow, Row
from pairwright.tasks.captioning.ask_differences import ask_differences
from pairwright.tasks.captioning.compose_difference import compose_difference
from pairwright.tasks.captioning.pair_graphs import pair_graphs
from pairwright.tasks.captioning.statements import Statement, row_random
from pairwright.tasks.captioning.validators import name_validators, refuse_text
from pairwright.tasks.store.answers import Answers
from pairwright.tasks.store.stage import Stage, Uses


def describe_differences(
    rows: Sequence[PairRow],
    config: DifferencesConfig,
    *,
    images: Mapping[str, ImageRow],
    captions: Mapping[str, CaptionRow],
    answers: Answers | None = None,
) -> Iterator[Row | Dropped | Failed]:
    """Yield the description of each pair, or ``Dropped`` with the reason of the last of ``max_attempts`` refusals.

    A served model may give several descriptions of one pair.
    """
    if config.is_served:
        yield from ask_differences(rows, config, images=images, captions=captions, answers=answers)
        return
    for row in rows:  # The graphs say more than captions.
        graphs = pair_graphs(row, images)
        yield graphs if isinstance(graphs, Dropped) else _describe(row, config, graphs=graphs)


def _describe(row: PairRow, config: DifferencesConfig, *, graphs: Graphs) -> DifferenceRow | Dropped:
    refused = Dropped(source_key=row.key, reason="no words for the difference")
    for attempt in range(1, config.max_attempts + 1):
        written = compose_difference(graphs, row_random("difference", config.seed, row.key, attempt))
        if written is None:
            continue
        read = read_difference(written.text, difference_verbs())
        if not isinstance(read, Difference):
            refused = Dropped(source_key=row.key, reason=read.reason, detail=read.detail)
        elif not all_hold(written.claims, graphs):
            refused = Dropped(source_key=row.key, reason="not true of the scene graphs", detail=written.text)
        elif why := refuse_text(read.text, config):
            refused = Dropped(source_key=row.key, reason=why, detail=written.text)
        else:
            return _row(row, config, written=written, read=read, attempt=attempt)
    return refused


def _row(
    row: PairRow, config: DifferencesConfig, *, written: Statement, read: Difference, attempt: int
) -> DifferenceRow:
    return DifferenceRow(
        key=row.key,
        source_key=row.key,
        subject=row.key,
        text=written.text,
        first_half=read.first_half,
        second_half=read.second_half,
        verbs=read.verbs,
        attempts=attempt,
        finish_reason="stop",
        model=config.writer,
        claims=CLAIMS.dump_json(written.claims, exclude_defaults=True).decode(),
        no_change=any(claim.kind == "no_change" for claim in written.claims),
    )


def fit_stage(stage: Stage, config: DifferencesConfig) -> Stage:
    """Return the stage as it runs: served models see the images, and their answers are remembered."""
    if not config.is_served:
        return stage
    uses = tuple(replace(use, without=()) if use.argument == "images" else use for use in stage.uses)
    return replace(stage, prompts=PROMPTS, uses=uses, remembers=True)


STAGE = Stage(
    name="described",
    version=2,
    group="captioning",
    reads={"pairs": PairRow},
    writes=DifferenceRow,
    function=describe_differences,
    config="differences",
    models=name_validators,
    prompts=("difference_template", "difference_phrases"),
    uses=(
        Uses(table="images", row=ImageRow, on="images", without=("image",)),
        Uses(table="captions", row=CaptionRow, on="images", counts=True),
    ),
    fit=fit_stage,
)
