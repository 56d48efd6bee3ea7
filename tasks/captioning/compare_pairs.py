"""Compare each pair: commonalities and differences (CaD) in a conversation of two turns, after paper 003.

Reads ``PairRow``, the images' scene graphs and their captions, writes ``ComparisonRow``: composed from the graphs,
passed through the validator that served models pass, and checked against the graphs (CPU, no network); or written by a
served model that reads the captions or sees the images (``ask_comparisons``). The source's own stays as it is.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from pairwright.schemas.claims import Graphs, all_hold
from pairwright.schemas.comparisons import Comparison, read_comparison
from pairwright.schemas.config import ComparisonsConfig
from pairwright.schemas.rows import CaptionRow, ComparisonRow, Dropped, Failed, ImageRow, PairRow, Row, Turn
from pairwright.tasks.captioning import ask_comparisons as served
from pairwright.tasks.captioning.belongs import false_of_other
from pairwright.tasks.captioning.compose_comparison import compose_comparison
from pairwright.tasks.captioning.conversations import PROMPTS, nearly_match, retrieval_turns, summary_turns
from pairwright.tasks.captioning.pair_graphs import pair_graphs
from pairwright.tasks.captioning.statements import SIDES, Side, row_random
from pairwright.tasks.captioning.validators import name_validators, refuse_text
from pairwright.tasks.store.answers import Answers
from pairwright.tasks.store.stage import Stage, Uses

NONE_GIVEN: Mapping[str, ComparisonRow] = MappingProxyType({})


def compare_pairs(
    rows: Sequence[PairRow],
    config: ComparisonsConfig,
    *,
    captions: Mapping[str, CaptionRow],
    images: Mapping[str, ImageRow] | None = None,
    given: Mapping[str, ComparisonRow] = NONE_GIVEN,
    answers: Answers | None = None,
) -> Iterator[Row | Dropped | Failed]:
    """Yield one comparison per pair, the source's own where it brought one, or ``Dropped`` with its reason."""
    images = images or {}
    yield from (replace(given[row.key], source_key=row.key) for row in rows if row.key in given)
    rows = [row for row in rows if row.key not in given]
    if config.is_served:
        yield from served.ask_comparisons(rows, config, captions=captions, images=images, answers=answers)
        return
    for row in rows:
        graphs = pair_graphs(row, images)
        if isinstance(graphs, Dropped):
            yield graphs
            continue
        texts = [captions[key].text if key in captions else "" for key in (row.first, row.second)]
        yield _compare(row, config, graphs=graphs, texts=texts)


def _compare(row: PairRow, config: ComparisonsConfig, *, graphs: Graphs, texts: list[str]) -> ComparisonRow | Dropped:
    refused = Dropped(source_key=row.key, reason="no words for the difference")
    for attempt in range(1, config.max_attempts + 1):
        written = compose_comparison(graphs, row_random("comparison", config.seed, row.key, attempt))
        if written is None:
            continue
        read = read_comparison(written.text)
        if not isinstance(read, Comparison):
            refused = Dropped(source_key=row.key, reason=read.reason, detail=read.detail)
        elif not all_hold(written.claims, graphs):
            refused = Dropped(source_key=row.key, reason="not true of the scene graphs", detail=written.text)
        elif why := refuse_text(read.text, config):
            refused = Dropped(source_key=row.key, reason=why, detail=written.text)
        else:
            turns = (*summary_turns(written.text), *_retrieval(row, config, graphs=graphs, texts=texts))
            return _row(row, config, text=written.text, read=read, turns=turns)
    return refused


def _row(
    row: PairRow, config: ComparisonsConfig, *, text: str, read: Comparison, turns: tuple[Turn, ...]
) -> ComparisonRow:
    return ComparisonRow(
        key=row.key,
        source_key=row.key,
        subject=row.key,
        text=text,
        commonalities=read.commonalities,
        differences=tuple(item.text for item in read.differences),
        axes=tuple(", ".join(item.axes) for item in read.differences),
        conversation=turns,
        model=config.writer,
    )


def _retrieval(row: PairRow, config: ComparisonsConfig, *, graphs: Graphs, texts: list[str]) -> tuple[Turn, ...]:
    """Ask which image a caption belongs to; nothing where the captions nearly match or fit both images."""
    if nearly_match(texts, config.max_caption_overlap):
        return ()
    sides: list[Side] = [side for side in SIDES if false_of_other(texts[side], graphs[side], graphs[1 - side])]
    return retrieval_turns(row, texts, sides, seed=config.seed)


def fit_stage(stage: Stage, config: ComparisonsConfig) -> Stage:
    """Return the stage as it runs: a served model sees the images or none, and its answers are remembered."""
    if not config.is_served:
        return stage
    asked = dict.fromkeys((served.PROMPTS[config.input], *PROMPTS))
    needed = ("images", "captions", "given") if "images" in config.input else ("captions", "given")
    uses = tuple(replace(use, without=()) for use in stage.uses if use.argument in needed)
    return replace(stage, prompts=tuple(asked), uses=uses, remembers=True)


STAGE = Stage(
    name="comparisons",
    version=3,
    group="captioning",
    reads={"pairs": PairRow},
    writes=ComparisonRow,
    function=compare_pairs,
    config="comparisons",
    models=name_validators,
    prompts=("comparison_sentences", "comparison_layout", "comparison_layout_list", *PROMPTS),
    uses=(
        Uses(table="images", row=ImageRow, on="images", without=("image",)),
        Uses(table="captions", row=CaptionRow, on="images", counts=True),
        Uses(table="given_comparisons", row=ComparisonRow, counts=True, name="given"),
    ),
    fit=fit_stage,
)
