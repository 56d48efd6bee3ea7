"""Put together what a preference trainer reads: a prompt about two images, a chosen text, and what is rejected.

Reads ``PairRow`` with everything that was made about it, writes ``PreferenceRow``: rejected text, ranked further
negatives and rejected images in one record.
"""

from collections.abc import Iterator, Mapping, Sequence
from random import Random

from prompts import load_wordings
from schemas.config import PreferencesConfig
from schemas.rows import (
    DifferenceRow,
    Dropped,
    ImageRow,
    Negative,
    PairRow,
    PreferenceRow,
    RejectedTextRow,
    RemovalRow,
    RemovalScore,
    SplitRow,
    Turn,
    make_key,
)
from tasks.preferences.score_removals import score_removals
from tasks.store.stage import Stage, Uses

PROMPT = "ask_difference"


def build_preferences(
    rows: Sequence[PairRow],
    config: PreferencesConfig,
    *,
    splits: Mapping[str, SplitRow],
    images: Mapping[str, ImageRow],
    differences: Mapping[str, DifferenceRow],
    retrieved: Mapping[str, RejectedTextRow],
    swapped: Mapping[str, RejectedTextRow],
    edited: Mapping[str, RejectedTextRow],
    removals: Mapping[str, tuple[RemovalRow, ...]],
) -> Iterator[PreferenceRow | Dropped]:
    """Yield one preference per pair that has a description and something to reject, else why there is none."""
    for pair in rows:
        difference = differences.get(pair.key)
        split = splits.get(pair.key)
        if difference is None or split is None:
            yield Dropped(source_key=pair.key, reason="no difference description")
            continue
        texts = [table[pair.key] for table in (edited, retrieved, swapped) if pair.key in table]
        shown = (images[pair.first], images[pair.second])
        scores = score_removals(difference, shown, (removals[pair.first], removals[pair.second]))
        if not texts and not scores:
            yield Dropped(source_key=pair.key, reason="nothing to reject")
            continue
        candidates = {row.key: row for image in (pair.first, pair.second) for row in removals[image]}
        yield _preference(
            pair,
            config,
            difference=difference,
            split=split,
            shown=shown,
            texts=texts,
            scores=scores,
            candidates=candidates,
        )


def _preference(
    pair: PairRow,
    config: PreferencesConfig,
    *,
    difference: DifferenceRow,
    split: SplitRow,
    shown: tuple[ImageRow, ImageRow],
    texts: Sequence[RejectedTextRow],
    scores: Sequence[RemovalScore],
    candidates: Mapping[str, RemovalRow],
) -> PreferenceRow:
    ranked = sorted(texts, key=lambda text: (-text.score, text.maker))
    rejected_images = _rejected_images(shown, scores, candidates)
    hardest, *others = ranked or [None]
    prompt = ask(pair, config)
    shows = [
        difference.text,
        prompt,
        *(text.text for text in ranked),
        *(score.removal for score in scores),
        split.split,
    ]
    return PreferenceRow(
        key=make_key(pair.key, *shows),
        source_key=pair.key,
        subject=pair.key,
        prompt=(Turn(role="user", text=prompt),),
        images=tuple(image.image for image in shown),
        image_keys=(pair.first, pair.second),
        chosen=difference.text,
        chosen_model=difference.model,
        rejected=hardest.text if hardest else "",
        rejected_maker=hardest.maker if hardest else "",
        rejected_note=hardest.note if hardest else "",
        negatives=tuple(Negative(text=t.text, maker=t.maker, note=t.note, score=t.score) for t in others if t),
        rejected_images=rejected_images,
        removal_scores=tuple(scores),
        component=split.component,
        split=split.split,
        sources=tuple(image.source for image in shown),
        licences=tuple(image.licence for image in shown),
    )


def ask(pair: PairRow, config: PreferencesConfig) -> str:
    """Return the question about the pair, one of several wordings, drawn by its key and the seed."""
    return load_wordings(PROMPT).say("ask", Random(make_key("ask", config.seed, pair.key)))


def _rejected_images(
    shown: tuple[ImageRow, ImageRow], scores: Sequence[RemovalScore], candidates: Mapping[str, RemovalRow]
) -> tuple[bytes, ...]:
    """Return both images with the chosen removal in place of one of them; none where no removal was chosen."""
    chosen = next((score for score in scores if score.chosen), None)
    if chosen is None:
        return ()
    altered = [image.image for image in shown]
    altered[chosen.side] = candidates[chosen.removal].image
    return tuple(altered)


STAGE = Stage(
    name="preferences",
    version=1,
    group="preferences",
    reads="pairs",
    row=PairRow,
    writes=PreferenceRow,
    function=build_preferences,
    config="preferences",
    prompts=(PROMPT,),
    uses=(
        Uses(table="splits", row=SplitRow, counts=True),
        Uses(table="images", row=ImageRow, on="images"),
        Uses(table="differences", row=DifferenceRow, counts=True),
        Uses(table="retrieved", row=RejectedTextRow, counts=True),
        Uses(table="swapped", row=RejectedTextRow, counts=True),
        Uses(table="edited", row=RejectedTextRow, counts=True),
        Uses(table="removals", row=RemovalRow, kind="many", on="images", counts=True),
    ),
    rows_per_shard=100,
)
