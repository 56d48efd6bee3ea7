"""Choose the removal that rejects a chosen text the most (paper 004, section 3.2).

Reads ``PairRow`` with its description, ``PreferenceRow`` as a source gave it, and the checked
removals from its images; writes one ``RejectionRow`` per pair or preference. A removal without
checks or vector is left out until it has them. If none can be chosen, ``rejections.fallback``
decides. ``SKIP_RULES`` and ``FALLBACK_RULES`` list the reasons.

Scene graphs score rendered scenes by the claims that a removal makes false. Elsewhere CLIP scores
by Eq. 9, the sum of the cosines of the text's statements, or sentences, with the candidate (needs
its text tower, PyTorch and open_clip; no image is read). Ours: a sentence of more than the tower's
77 tokens is cut, and the score is the drop of the sum against the original image, so that
candidates of two images are comparable.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from math import exp, log, sqrt
from operator import attrgetter
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.claims import CLAIMS, Claim, Graphs, is_true_claim
from pairwright.schemas.config import Profile, RejectionsConfig
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
from pairwright.tasks.models.text_scorer import SCORERS, Scorer, count_scorers, name_texts
from pairwright.tasks.store.stage import Stage, Uses
from pairwright.tasks.store.vectors import Vectors
from pairwright.tasks.texts.words import affirmed, split_by_rules

NO_TEXT = "no difference description"
NO_ELEMENT = "no element can be removed"
NO_DROP = "no removal makes the text fit worse"
NONE_PASSED = "no removal that makes the text fit worse passed its checks"
MAX_CHARACTERS = 20_000  # scored part of a text
MAX_PIECES = 100  # scored sentences of a text
DIGITS = 6  # rounding of scores: later digits depend on the batch size
MAX_ASPECT = 4 / 3  # of a crop
Matrix = NDArray[np.float32]  # vectors of sentences, ``(n, dimension)``
Window = tuple[int, int, int, int]
Text = str | tuple[str, ...]  # A text, to be split into sentences, or its statements
Elements = Mapping[str, tuple[ElementRow, ...]]
Inspections = Mapping[str, tuple[InspectionRow, ...]]
Statements = Mapping[str, tuple[StatementsRow, ...]]


class CheckedRemoval(NamedTuple):
    """Element that was removed from one of the images, with the checks of its removal."""

    side: int
    element: ElementRow
    check: InspectionRow


class Fit(NamedTuple):
    """Fit of a text to an image without an element."""

    drop: float
    clip: float = 0.0  # sum of the cosines of the text's sentences with the candidate (Eq. 9).


Scored = tuple[CheckedRemoval, Fit]


@dataclass(frozen=True, slots=True)
class RejectionRequest:
    """Pair or preference with its images and the texts about them; ``None``: no description."""

    key: str
    image_keys: tuple[str, ...]
    texts: Sequence[Text] | None


def has_no_text(request: RejectionRequest) -> bool:
    """Return whether the pair has no description."""
    return request.texts is None


def has_several_images(request: RejectionRequest) -> bool:
    """Return whether a text is not about exactly one image."""
    return request.texts is not None and len(request.image_keys) != len(request.texts)


SKIP_RULES: tuple[tuple[Callable[[RejectionRequest], bool], str], ...] = (
    (has_no_text, NO_TEXT),
    (has_several_images, SEVERAL),
)
"""Reasons not to score a pair or preference; the first that applies counts."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Scored candidates of a pair or preference."""

    scored: tuple[Scored, ...]
    worse: tuple[Scored, ...]
    """Candidates that the text fits worse than the original image."""
    passed: tuple[Scored, ...]
    """Candidates of ``worse`` that passed their checks."""


def has_no_candidates(ranking: Ranking) -> bool:
    """Return whether no removal was scored."""
    return not ranking.scored


def fits_no_worse(ranking: Ranking) -> bool:
    """Return whether no removal lowers the fit of the text by more than ``min_drop``."""
    return not ranking.worse


def none_passed(ranking: Ranking) -> bool:
    """Return whether every removal that lowers the fit failed its checks."""
    return not ranking.passed


FALLBACK_RULES: tuple[tuple[Callable[[Ranking], bool], str], ...] = (
    (has_no_candidates, NO_ELEMENT),
    (fits_no_worse, NO_DROP),
    (none_passed, NONE_PASSED),
)
"""Reasons to use the fallback; the first that applies counts. None: the best removal is chosen."""


def choose_removals(
    rows: Sequence[PairRow | PreferenceRow],
    config: RejectionsConfig,
    *,
    elements: Elements = NO_ROWS,
    inspected: Inspections = NO_ROWS,
    differences: Mapping[str, DifferenceRow] = NO_ROWS,
    images: Images = NO_ROWS,
    statements: Statements = NO_ROWS,
    vectors: Mapping[str, Vectors] = NO_ROWS,
    candidates: Mapping[str, Vectors] = NO_ROWS,
) -> Iterator[RejectionRow | Dropped]:
    """Yield the rejection of each pair's description by an image, with every candidate's score.

    A source's preference is about one image, and is scored by CLIP: ``vectors`` are those of the
    images by embedder, ``candidates`` those of the images without an element, by embedder and the
    element's key. ``statements`` are those of texts that a served model split.
    """
    requests = [_make_request(row, differences, statements) for row in rows]
    sentence_vectors = _embed_requests(requests, config)
    for request in requests:
        dropped = _skip(request)
        if dropped:
            yield dropped
            continue
        removed = candidates_of(request.image_keys, elements, inspected)
        if sentence_vectors is None:
            difference = differences[request.key]
            scored = score_by_graphs(difference, _pair_images(request, images), removed)
        else:
            scored = score_by_vectors(
                removed,
                request,
                sentence_vectors,
                space=config.scorer,
                images=vectors,
                removals=candidates,
            )
        yield pick_removal(
            request.key,
            scored,
            config,
            images=_known(request, images),
        )


def _embed_requests(
    requests: Sequence[RejectionRequest], config: RejectionsConfig
) -> dict[Text, Matrix] | None:
    """Return the sentence vectors of all texts; ``None`` if graphs score."""
    if config.clip is None:
        return None
    texts = chain.from_iterable(request.texts or () for request in requests)
    return embed_texts(texts, SCORERS.make(config.scorer, config))


def _pair_images(request: RejectionRequest, images: Images) -> tuple[ImageRow, ImageRow]:
    first, second = request.image_keys
    return images[first], images[second]


def _known(request: RejectionRequest, images: Images) -> list[ImageRow]:
    return [images[key] for key in request.image_keys if key in images]


def _make_request(
    row: PairRow | PreferenceRow, differences: Mapping[str, DifferenceRow], statements: Statements
) -> RejectionRequest:
    if isinstance(row, PreferenceRow):
        image_keys = row.image_keys
        text = row
    else:
        image_keys = (row.first, row.second)
        text = differences.get(row.key)
    if text is None:
        return RejectionRequest(row.key, image_keys, texts=None)
    split: dict[str, Text] = {
        split_row.text: split_row.sentences
        for split_row in statements.get(row.subject, ())
        if split_row.source_key == text.key
    }
    return RejectionRequest(
        row.key, image_keys, [split.get(part, part) for part in preferred_texts(text)]
    )


def _skip(request: RejectionRequest) -> Dropped | None:
    """Return why a pair or preference is not scored; ``None``: it is."""
    for applies, reason in SKIP_RULES:
        if applies(request):
            detail = f"{len(request.image_keys)}" if reason == SEVERAL else ""
            return Dropped(
                source_key=request.key,
                reason=reason,
                detail=detail,
            )
    return None


def candidates_of(
    keys: Sequence[str], elements: Elements, inspected: Inspections
) -> list[CheckedRemoval]:
    """Return the removed and checked elements, by image."""
    checks: dict[str, InspectionRow] = {}
    for key in keys:
        checks |= {check.element: check for check in inspected.get(key, ())}
    candidates: list[CheckedRemoval] = []
    for side, key in enumerate(keys):
        for element in elements.get(key, ()):
            if element.key in checks:
                candidates.append(CheckedRemoval(side, element, checks[element.key]))
    return candidates


def score_by_graphs(
    difference: DifferenceRow,
    images: tuple[ImageRow, ImageRow],
    candidates: Sequence[CheckedRemoval],
) -> Iterator[Scored]:
    """Yield each candidate with the share of the true claims that its removal breaks.

    Yields none unless both images have a graph.
    """
    first = images[0].graph
    second = images[1].graph
    if first is None or second is None:
        return
    graphs = (first, second)
    claims = true_claims(difference, graphs)
    for candidate in candidates:
        object_ids = candidate.element.object_ids
        yield candidate, Fit(share_broken(claims, graphs, candidate.side, object_ids))


def true_claims(difference: DifferenceRow, graphs: Graphs) -> list[Claim]:
    """Return the claims of a text that are true of its images."""
    return [
        claim for claim in CLAIMS.validate_json(difference.claims) if is_true_claim(claim, graphs)
    ]


def share_broken(
    true: Sequence[Claim],
    graphs: Graphs,
    side: int,
    object_ids: Sequence[str],
) -> float:
    """Return the share of true claims that are false without some objects of one image."""
    graph = graphs[side]
    # A removal is a change of the scene: it makes "nothing has changed" false.
    removals = tuple(SceneChange(type="removal", object_id=object_id) for object_id in object_ids)
    objects = tuple(item for item in graph.objects if item.id not in object_ids)
    update = {"objects": objects, "changes": (*graph.changes, *removals)}
    without = graph.model_copy(update=update)
    altered = (without, graphs[1]) if side == 0 else (graphs[0], without)
    broken = sum(not is_true_claim(claim, altered) for claim in true)
    return float(np.float32(broken / max(len(true), 1)))


def embed_texts(texts: Iterable[Text], scorer: Scorer) -> dict[Text, Matrix]:
    """Return the vectors of each text's scored sentences.

    Each sentence is embedded once, in sorted order.
    """
    sentences_of = {text: _scored_sentences(text, scorer) for text in texts}
    sentences = sorted(set(chain.from_iterable(sentences_of.values())))
    positions = {sentence: position for position, sentence in enumerate(sentences)}
    vectors = scorer.embed(sentences)
    embedded: dict[Text, Matrix] = {}
    for text, parts in sentences_of.items():
        if parts:
            embedded[text] = vectors[[positions[sentence] for sentence in parts]]
    return embedded


def preferred_texts(row: DifferenceRow | PreferenceRow) -> tuple[str, ...]:
    """Return the affirmed text about each image.

    A text without a change is whole, as any removal makes it false.
    """
    if isinstance(row, PreferenceRow):
        return (row.chosen,)
    if row.no_change:
        return row.halves
    return affirmed(row.first_half), affirmed(row.second_half)


def _scored_sentences(text: Text, scorer: Scorer) -> tuple[str, ...]:
    """Return the scored sentences, cut to the tower's length."""
    sentences = split_by_rules(text[:MAX_CHARACTERS]) if isinstance(text, str) else text
    pieces = chain.from_iterable(map(scorer.split_text, sentences))
    return tuple(islice(pieces, MAX_PIECES))


def score_by_vectors(
    candidates: Iterable[CheckedRemoval],
    request: RejectionRequest,
    sentence_vectors: Mapping[Text, Matrix],
    *,
    space: str,
    images: Mapping[str, Vectors],
    removals: Mapping[str, Vectors],
) -> Iterator[Scored]:
    """Yield each candidate with its fit to the text about its image, unless a vector is missing."""
    if space not in images or space not in removals:
        return
    texts = request.texts or ()
    for candidate in candidates:
        original = images[space].units_of([request.image_keys[candidate.side]])
        altered = removals[space].units_of([candidate.element.key])
        if original is None or altered is None:
            continue
        sentences = sentence_vectors.get(texts[candidate.side])
        before = _sum_cosines(sentences, original[0])
        after = _sum_cosines(sentences, altered[0])
        yield candidate, Fit(round(before - after, DIGITS), after)


def _sum_cosines(sentences: Matrix | None, image: NDArray[np.float32]) -> float:
    if sentences is None:
        return 0.0
    cosines = sentences.astype(np.float64) @ image
    return round(float(cosines.sum()), DIGITS)


def pick_removal(
    key: str,
    scored: Iterable[Scored],
    config: RejectionsConfig,
    *,
    images: Sequence[ImageRow] = (),
) -> RejectionRow | Dropped:
    """Return the row of a pair or preference: the best candidate that passed, or the fallback.

    The highest score wins, then the smaller area, then the key. A crop is drawn of ``images``.
    """
    ranking = _rank(scored, config.min_drop)
    best = min(map(_order, ranking.passed), default=None)
    chosen = best[-1] if best else ""
    scores = tuple(_score_row(candidate, fit, chosen) for candidate, fit in ranking.scored)
    row = RejectionRow(
        key="",
        source_key=key,
        subject=key,
        maker="",
        removal_scores=scores,
    )
    if chosen:
        side = next(score.side for score in scores if score.chosen)
        row = replace(
            row,
            maker="removal",
            side=side,
            element=chosen,
        )
    else:
        row = replace(row, why=_explain_fallback(ranking))
        if config.fallback == "drop":
            return Dropped(
                source_key=key,
                reason=NO_IMAGE,
                detail=row.why,
            )
        if config.fallback == "crop" and images:
            row = _add_crop(row, images, config)
    return replace(row, key=_rejection_key(row))


def _rank(scored: Iterable[Scored], min_drop: float) -> Ranking:
    everything = tuple(scored)
    worse = tuple(pair for pair in everything if pair[1].drop > min_drop)
    passed = tuple(pair for pair in worse if not pair[0].check.why)
    return Ranking(everything, worse, passed)


def _order(scored: Scored) -> tuple[float, float, str]:
    candidate, fit = scored
    return -fit.drop, candidate.element.area_share, candidate.element.key


def _score_row(candidate: CheckedRemoval, fit: Fit, chosen: str) -> RemovalScore:
    return RemovalScore(
        removal=candidate.element.key,
        tag=candidate.element.tag,
        side=candidate.side,
        score=fit.drop,
        chosen=candidate.element.key == chosen,
        clip=fit.clip,
        why=candidate.check.why,
    )


def _explain_fallback(ranking: Ranking) -> str:
    """Return why no removal is chosen, with the reason of the best one that failed its checks."""
    reason = next(reason for applies, reason in FALLBACK_RULES if applies(ranking))
    if reason != NONE_PASSED:
        return reason
    _, check = min((-fit.drop, candidate.check.why) for candidate, fit in ranking.worse)
    return f"{reason}: {check}"


def _add_crop(
    row: RejectionRow, images: Sequence[ImageRow], config: RejectionsConfig
) -> RejectionRow:
    """Return the row with a random crop of one image; unchanged if the crop is the whole image."""
    rng = Random(make_key("crop", config.seed, row.subject))
    side = rng.randrange(len(images))
    image = images[side]
    area = (config.min_crop_area, config.max_crop_area)
    window = draw_crop(
        rng,
        image.width,
        image.height,
        area=area,
    )
    if window is None:
        return row
    return replace(
        row,
        maker="crop",
        side=side,
        window=window,
    )


def _rejection_key(row: RejectionRow) -> str:
    content = f"{row.maker} {row.side} {row.element} {row.window} {row.why}"
    scores = [
        f"{score.removal} {score.side} {score.score} {score.clip} {score.why}"
        for score in row.removal_scores
    ]
    return make_key("rejection", row.subject, content, *scores)


def draw_crop(
    rng: Random,
    width: int,
    height: int,
    *,
    area: tuple[float, float],
) -> Window | None:
    """Draw a window of an image (mDPO's rejected image): x0, y0, x1, y1, the last two exclusive.

    Its share of the image is drawn from a range, its aspect between 3:4 and 4:3; in too narrow an
    image it is smaller, not longer (ours). ``None`` if it would be the whole image.
    """
    pixels = width * height * rng.uniform(*area)
    aspect = exp(rng.uniform(-log(MAX_ASPECT), log(MAX_ASPECT)))
    wide = sqrt(pixels * aspect)
    high = sqrt(pixels / aspect)
    scale = min(1.0, width / wide, height / high)
    crop_width = max(1, round(wide * scale))
    crop_height = max(1, round(high * scale))
    x0 = rng.randint(0, width - crop_width)
    y0 = rng.randint(0, height - crop_height)
    if (crop_width, crop_height) == (width, height):
        return None
    return x0, y0, x0 + crop_width, y0 + crop_height


def _scores_by_vectors(config: RejectionsConfig) -> bool:
    return config.scorer != "scene-graph"


def _reads_images(config: RejectionsConfig) -> bool:
    """Return whether graphs, or the sizes of crops, are needed."""
    return config.scorer == "scene-graph" or config.fallback == "crop"


def _configure(profile: Profile) -> RejectionsConfig:
    clip = profile.embedding.clip if profile.rejections.by_vectors else None
    return profile.complete(profile.rejections.fill(clip=clip))


IMAGES = Uses(
    table="images", row=ImageRow, on="about", without=("image", "captions"), when=_reads_images
)
STATEMENTS = Uses(
    table="statements",
    row=StatementsRow,
    kind="many",
    without=("served",),
    counts=True,
    when=_scores_by_vectors,
)
VECTORS = Uses(
    table="embeddings",
    row=EmbeddingRow,
    kind="vectors",
    on="about",
    name="vectors",
    counts=True,
    when=_scores_by_vectors,
)
CANDIDATES = Uses(
    table="fitted",
    row=EmbeddingRow,
    kind="vectors",
    name="candidates",
    on="key",
    of="elements",
    counts=True,
    when=_scores_by_vectors,
)
STAGE = Stage(
    name="rejections",
    group="rejected",
    reads={"pairs": PairRow, "given_preferences": PreferenceRow},
    writes=RejectionRow,
    function=choose_removals,
    without=("images", "rejected_images"),
    config=_configure,
    enabled=attrgetter("enabled"),
    models=name_texts,
    processes=count_scorers,
    uses=(
        Uses(table="differences", row=DifferenceRow, counts=True),
        IMAGES,
        Uses(
            table="elements",
            row=ElementRow,
            kind="many",
            on="about",
            counts=True,
            without=("mask", "boxes"),
        ),
        Uses(table="inspected", row=InspectionRow, kind="many", on="about", counts=True),
        STATEMENTS,
        VECTORS,
        CANDIDATES,
    ),
)
