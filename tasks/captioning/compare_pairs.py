"""Compare each pair: commonalities and differences (CaD) in a conversation of two turns, after paper 003.

Reads ``PairRow``, the images' scene graphs and their captions, writes ``ComparisonRow``: composed from the graphs,
passed through the validator that served models pass, and checked against the graphs. CPU, no network.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from prompts import load
from schemas.claims import Graphs, all_hold
from schemas.comparisons import Comparison, read_comparison
from schemas.config import ComparisonsConfig
from schemas.rows import CaptionRow, ComparisonRow, Dropped, ImageRow, PairRow, Turn
from tasks.captioning.belongs import false_of_other
from tasks.captioning.compose_comparison import compose_comparison
from tasks.captioning.pair_graphs import pair_graphs
from tasks.captioning.statements import SIDES, row_random
from tasks.store.stage import Stage, Uses

WORD = re.compile(r"\w+")


def compare_pairs(
    rows: Sequence[PairRow],
    config: ComparisonsConfig,
    *,
    images: Mapping[str, ImageRow],
    captions: Mapping[str, CaptionRow],
) -> Iterator[ComparisonRow | Dropped]:
    """Yield one comparison per pair, or ``Dropped`` with its reason."""
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
        else:
            turns = (*_summary(written.text), *_retrieval(row, config, graphs=graphs, texts=texts))
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


def _summary(text: str) -> tuple[Turn, Turn]:
    return Turn(role="user", text=load("compare_images").render()), Turn(role="assistant", text=text)


def _retrieval(row: PairRow, config: ComparisonsConfig, *, graphs: Graphs, texts: list[str]) -> tuple[Turn, ...]:
    """Ask which image a caption belongs to; nothing where the captions nearly match or fit both images."""
    if not all(texts) or overlap(*texts) > config.caption_overlap:
        return ()
    sides = [side for side in SIDES if false_of_other(texts[side], graphs[side], graphs[1 - side])]
    if not sides:
        return ()
    side = row_random("retrieval", config.seed, row.key).choice(sides)
    question = load("retrieve_image").render(caption=texts[side])
    return Turn(role="user", text=question), Turn(role="assistant", text="AB"[side])


def overlap(first: str, second: str) -> float:
    """Return the share of the larger caption's different words that the other has too."""
    words = [set(WORD.findall(text.lower())) for text in (first, second)]
    return len(words[0] & words[1]) / max(len(words[0]), len(words[1]), 1)


STAGE = Stage(
    name="comparisons",
    version=2,
    group="captioning",
    reads="pairs",
    row=PairRow,
    writes=ComparisonRow,
    function=compare_pairs,
    config="comparisons",
    prompts=(
        "comparison_sentences",
        "comparison_layout",
        "comparison_layout_list",
        "compare_images",
        "retrieve_image",
    ),
    uses=(
        Uses(table="images", row=ImageRow, on="images", without=("image",)),
        Uses(table="captions", row=CaptionRow, on="images", counts=True),
    ),
)
