"""Choose the removal that rejects a chosen text the most (paper 004, section 3.2).

Reads ``PairRow`` with its description, ``PreferenceRow`` as a source gave it, and the checked
removals from its images; writes one ``RejectionRow`` per pair or preference. A removal without
checks or vector is left out until it has them. If none can be chosen, ``rejections.fallback``
decides.

Scene graphs score rendered scenes by the claims that a removal makes false. Elsewhere CLIP scores
by Eq. 9, the sum of the cosines of the text's statements, or sentences, with the candidate (needs
its text tower, PyTorch and open_clip; no image is read). Ours: a sentence of more than the tower's
77 tokens is cut, and the score is the drop of the sum against the original image, so that
candidates of two images are comparable.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from math import exp, log, sqrt
from operator import attrgetter
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.claims import CLAIMS, Claim, Graphs, holds
from pairwright.schemas.config import RejectionsConfig
from pairwright.schemas.removing import NO_IMAGE, SEVERAL
from pairwright.schemas.rows import (
    NO_ROWS,
    DifferenceRow,
    Dropped,
    ElementRow,
    EmbeddingRow,
    ImageRow,
    Images,
    InspectionRow,
    PairRow,
    PreferenceRow,
    RejectionRow,
    RemovalScore,
    StatementsRow,
    make_key,
)
from pairwright.schemas.scene import SceneChange
from pairwright.tasks.models.devices import count_processes
from pairwright.tasks.models.text_scorer import OpenClipTexts, name_texts
from pairwright.tasks.store.stage import Stage, Uses
from pairwright.tasks.store.vectors import Vectors
from pairwright.tasks.texts.words import affirmed, split_by_rules

NO_ELEMENT, NONE_PASSED = (
    "no element can be removed",
    "no removal that makes the text fit worse passed its checks",
)
NO_DROP = "no removal makes the text fit worse"
MAX_CHARACTERS, MAX_PIECES = 20_000, 100  # scored part of a text
DIGITS = 6  # rounding of scores: later digits depend on the batch size
SPACE = "clip"
MAX_ASPECT = 4 / 3  # of a crop
Matrix = NDArray[np.float32]  # vectors of sentences, ``(n, dimension)``
Window = tuple[int, int, int, int]
Text = str | tuple[str, ...]  # A text, to be split into sentences, or its statements
Elements = Mapping[str, tuple[ElementRow, ...]]
Inspections = Mapping[str, tuple[InspectionRow, ...]]


class Candidate(NamedTuple):
    """Element that was removed from one of the images, with the checks of its removal."""

    side: int
    element: ElementRow
    check: InspectionRow


class Fit(NamedTuple):
    """Fit of a text to an image without an element."""

    drop: float
    clip: float = 0.0  # sum of the cosines of the text's sentences with the candidate (Eq. 9).


def choose_removals(
    rows: Sequence[PairRow | PreferenceRow],
    config: RejectionsConfig,
    *,
    elements: Elements,
    inspected: Inspections,
    differences: Mapping[str, DifferenceRow] = NO_ROWS,
    images: Images = NO_ROWS,
    statements: Mapping[str, tuple[StatementsRow, ...]] = NO_ROWS,
    vectors: Mapping[str, Vectors] = NO_ROWS,
    candidates: Mapping[str, Vectors] = NO_ROWS,
) -> Iterator[RejectionRow | Dropped]:
    """Yield the rejection of each pair's description by an image, with the score of every candidate.

    A source's preference is about one image, and is scored by CLIP: ``vectors`` are those of the
    images by embedder, ``candidates`` those of the images without an element, by embedder and the
    element's key. ``statements`` are those of texts that a served model split.
    """
    texts_by_key: dict[str, list[Text]] = {}
    for row in rows:
        if text := row if isinstance(row, PreferenceRow) else differences.get(row.key):
            split = {
                one.text: one.sentences
                for one in statements.get(row.subject, ())
                if one.source_key == text.key
            }
            texts_by_key[row.key] = [split.get(one, one) for one in texts_of(text)]
    scorer = OpenClipTexts(config=config.clip) if config.clip else None
    spoken = embed_texts(chain(*texts_by_key.values()), scorer) if scorer else {}
    for row in rows:
        keys = (row.first, row.second) if isinstance(row, PairRow) else row.image_keys
        if row.key not in texts_by_key:
            yield Dropped(source_key=row.key, reason="no difference description")
            continue
        if len(keys) != len(texts_by_key[row.key]):
            yield Dropped(source_key=row.key, reason=SEVERAL, detail=f"{len(keys)}")
            continue
        found = candidates_of(keys, elements, inspected)
        if scorer:
            said = [spoken.get(text) for text in texts_by_key[row.key]]
            scored = score_by_clip(found, keys, said, images=vectors, removals=candidates)
        else:
            scored = score_by_graphs(
                differences[row.key], (images[keys[0]], images[keys[1]]), found
            )
        yield pick_removal(
            row.key, scored, config, shown=[images[key] for key in keys if key in images]
        )


def candidates_of(
    keys: Sequence[str], elements: Elements, inspected: Inspections
) -> list[Candidate]:
    """Return the removed and checked elements, by image."""
    checks = {check.element: check for key in keys for check in inspected.get(key, ())}
    return [
        Candidate(side, element, checks[element.key])
        for side, key in enumerate(keys)
        for element in elements.get(key, ())
        if element.key in checks
    ]


def score_by_graphs(
    difference: DifferenceRow, images: tuple[ImageRow, ImageRow], candidates: Sequence[Candidate]
) -> Iterator[tuple[Candidate, Fit]]:
    """Yield each candidate with the share of the true claims that its removal breaks; none without both graphs."""
    first, second = images[0].graph, images[1].graph
    if first and second:
        true = true_claims(difference, (first, second))
        for one in candidates:
            yield one, Fit(share_broken(true, (first, second), one.side, one.element.object_ids))


def true_claims(difference: DifferenceRow, graphs: Graphs) -> list[Claim]:
    """Return the claims of a text that are true of its images."""
    return [claim for claim in CLAIMS.validate_json(difference.claims) if holds(claim, graphs)]


def share_broken(
    true: Sequence[Claim], graphs: Graphs, side: int, object_ids: Sequence[str]
) -> float:
    """Return the share of true claims that are false without some objects of one image."""
    graph = graphs[side]
    gone = tuple(SceneChange(type="removal", object_id=name) for name in object_ids)
    objects = tuple(thing for thing in graph.objects if thing.id not in object_ids)
    # A removal is a change of the scene: it makes "nothing has changed" false.
    without = graph.model_copy(update={"objects": objects, "changes": (*graph.changes, *gone)})
    left = (without, graphs[1]) if side == 0 else (graphs[0], without)
    return float(np.float32(sum(not holds(claim, left) for claim in true) / max(len(true), 1)))


def embed_texts(texts: Iterable[Text], scorer: OpenClipTexts) -> dict[Text, Matrix]:
    """Return the vectors of each text's scored sentences; the different sentences are embedded in sorted order."""
    pieces = {text: _sentences(text, scorer) for text in texts}
    known = sorted(set(chain.from_iterable(pieces.values())))
    place = {sentence: number for number, sentence in enumerate(known)}
    vectors = scorer.embed(known)
    return {
        text: vectors[[place[sentence] for sentence in parts]]
        for text, parts in pieces.items()
        if parts
    }


def texts_of(row: DifferenceRow | PreferenceRow) -> tuple[str, ...]:
    """Return the affirmed text about each image; a text without a change is whole, as any removal makes it false."""
    if isinstance(row, PreferenceRow):
        return (row.chosen,)
    return row.halves if row.no_change else (affirmed(row.first_half), affirmed(row.second_half))


def _sentences(text: Text, scorer: OpenClipTexts) -> tuple[str, ...]:
    """Return the scored sentences, cut to the tower's length."""
    sentences = split_by_rules(text[:MAX_CHARACTERS]) if isinstance(text, str) else text
    return tuple(islice(chain.from_iterable(map(scorer.pieces, sentences)), MAX_PIECES))


def score_by_clip(
    candidates: Iterable[Candidate],
    keys: Sequence[str],
    spoken: Sequence[Matrix | None],
    *,
    images: Mapping[str, Vectors],
    removals: Mapping[str, Vectors],
) -> Iterator[tuple[Candidate, Fit]]:
    """Yield each candidate with its fit to the text about its image, ``spoken``; none where a vector is missing yet."""
    if SPACE in images and SPACE in removals:
        for one in candidates:
            original = images[SPACE].units_of([keys[one.side]])
            candidate = removals[SPACE].units_of([one.element.key])
            if original is not None and candidate is not None:
                said = spoken[one.side]
                before, after = (
                    0.0
                    if said is None
                    else round(float((said.astype(np.float64) @ image[0]).sum()), DIGITS)
                    for image in (original, candidate)
                )
                yield one, Fit(round(before - after, DIGITS), after)


def pick_removal(
    key: str,
    scored: Iterable[tuple[Candidate, Fit]],
    config: RejectionsConfig,
    *,
    shown: Sequence[ImageRow] = (),
) -> RejectionRow | Dropped:
    """Return the row of a pair or preference, by its key: the best candidate that passed, or the profile's fallback.

    The highest score wins, then the smaller area, then the key. A crop is drawn of the images
    ``shown``.
    """
    found = list(scored)
    worse = [
        (one.check.why, -fit.drop, one.element.area_share, one.element.key)
        for one, fit in found
        if fit.drop > config.min_drop
    ]
    ranked = [one for one in worse if not one[0]]
    chosen = min(ranked)[-1] if ranked else ""
    scores = tuple(
        RemovalScore(
            removal=one.element.key,
            tag=one.element.tag,
            side=one.side,
            score=fit.drop,
            chosen=one.element.key == chosen,
            clip=fit.clip,
            why=one.check.why,
        )
        for one, fit in found
    )
    row = RejectionRow(key="", source_key=key, subject=key, maker="", removal_scores=scores)
    if chosen:
        row = replace(
            row,
            maker="removal",
            side=next(one.side for one in scores if one.chosen),
            element=chosen,
        )
    else:
        refused = [(drop, why) for why, drop, *_ in worse]
        row = replace(
            row,
            why=f"{NONE_PASSED}: {min(refused)[1]}"
            if refused
            else NO_DROP
            if found
            else NO_ELEMENT,
        )
        if config.fallback == "drop":
            return Dropped(source_key=key, reason=NO_IMAGE, detail=row.why)
        if config.fallback == "crop" and shown:
            rng = Random(make_key("crop", config.seed, key))
            side = rng.randrange(len(shown))
            area = (config.min_crop_area, config.max_crop_area)
            if window := draw_crop(rng, shown[side].width, shown[side].height, area=area):
                row = replace(row, maker="crop", side=side, window=window)
    about = f"{row.maker} {row.side} {row.element} {row.window} {row.why}"
    scored_as = [f"{one.removal} {one.side} {one.score} {one.clip} {one.why}" for one in scores]
    return replace(row, key=make_key("rejection", key, about, *scored_as))


def draw_crop(rng: Random, width: int, height: int, *, area: tuple[float, float]) -> Window | None:
    """Draw a window of an image (mDPO's rejected image): x0, y0, x1, y1, the last two exclusive.

    Its share of the image is drawn from a range, its aspect between 3:4 and 4:3; in too narrow an
    image it is smaller, not longer (ours). ``None`` if it would be the whole image.
    """
    pixels = width * height * rng.uniform(*area)
    aspect = exp(rng.uniform(-log(MAX_ASPECT), log(MAX_ASPECT)))
    sides = sqrt(pixels * aspect), sqrt(pixels / aspect)
    fit = min(1.0, width / sides[0], height / sides[1])
    wide, high = (max(1, round(side * fit)) for side in sides)
    x0, y0 = rng.randint(0, width - wide), rng.randint(0, height - high)
    return None if (wide, high) == (width, height) else (x0, y0, x0 + wide, y0 + high)


def _fit(stage: Stage, config: RejectionsConfig) -> Stage:
    """Return the stage with its scorer's inputs: vectors, and images only for graphs and the sizes of crops."""
    unseen: tuple[Uses, ...] = (STATEMENTS, VECTORS, CANDIDATES)
    if config.scorer == "clip":
        unseen = () if config.fallback == "crop" else (IMAGES,)
    return replace(stage, uses=tuple(use for use in stage.uses if use not in unseen))


IMAGES = Uses(table="images", row=ImageRow, on="shown", without=("image", "captions"))
STATEMENTS = Uses(
    table="statements", row=StatementsRow, kind="many", without=("served",), counts=True
)
VECTORS = Uses(
    table="embeddings", row=EmbeddingRow, kind="vectors", on="shown", name="vectors", counts=True
)
CANDIDATES = Uses(
    table="fitted",
    row=EmbeddingRow,
    kind="vectors",
    name="candidates",
    on="key",
    of="elements",
    counts=True,
)
STAGE = Stage(
    name="rejections",
    group="rejected",
    reads={"pairs": PairRow, "given_preferences": PreferenceRow},
    writes=RejectionRow,
    function=choose_removals,
    without=("images", "rejected_images"),
    config=lambda profile: profile.complete(
        profile.rejections.fill(clip=profile.embedding.clip if profile.rejections.by_clip else None)
    ),
    enabled=attrgetter("enabled"),
    fit=_fit,
    models=name_texts,
    processes=partial(count_processes, attrgetter("by_clip")),
    uses=(
        Uses(table="differences", row=DifferenceRow, counts=True),
        IMAGES,
        Uses(
            table="elements",
            row=ElementRow,
            kind="many",
            on="shown",
            counts=True,
            without=("mask", "boxes"),
        ),
        Uses(table="inspected", row=InspectionRow, kind="many", on="shown", counts=True),
        STATEMENTS,
        VECTORS,
        CANDIDATES,
    ),
)
