"""Pick of the removals that were tried the one that rejects a chosen text, or what the profile wants in its place.

Reads and writes nothing. A removal that failed a check keeps its score, and is not chosen.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from pairwright.schemas.config import RejectionsConfig
from pairwright.schemas.removing import NO_IMAGE
from pairwright.schemas.rows import Dropped, ElementRow, ImageRow, InspectionRow, RejectionRow, RemovalScore, make_key
from pairwright.tasks.rejected.draw_crop import draw_crop
from pairwright.tasks.rejected.score_by_clip import ClipScores, Fit

NO_ELEMENT, NONE_PASSED = "no element can be removed", "no removal passed its checks"
NO_DROP = "no removal makes the text fit worse"
Elements = Mapping[str, tuple[ElementRow, ...]]
Inspections = Mapping[str, tuple[InspectionRow, ...]]


@dataclass(frozen=True, slots=True)
class Candidate:
    """Be an image without one of its elements, checked and scored."""

    score: RemovalScore
    element: ElementRow

    @property
    def rank(self) -> tuple[float, float, str]:
        """Return what is smaller for a better one: the highest score wins, then the smaller area, then the key."""
        return -self.score.score, self.element.area_share, self.element.key


@dataclass(frozen=True, slots=True)
class Tried:
    """Be an element that was removed, and the removal checked."""

    side: int
    element: ElementRow
    check: InspectionRow

    def scored(self, fit: Fit) -> Candidate:
        """Return the candidate that it is."""
        score = RemovalScore(
            removal=self.element.key,
            tag=self.element.tag,
            side=self.side,
            score=fit.drop,
            chosen=False,
            clip=fit.clip,
            why=self.check.why,
        )
        return Candidate(score, self.element)


def tried_of(keys: Sequence[str], elements: Elements, inspected: Inspections) -> list[Tried]:
    """Return the elements of the images that were removed and checked, by image."""
    checks = {check.element: check for key in keys for check in inspected.get(key, ())}
    return [
        Tried(side, element, checks[element.key])
        for side, key in enumerate(keys)
        for element in elements.get(key, ())
        if element.key in checks
    ]


def score_by_clip(
    tried: Iterable[Tried], keys: Sequence[str], texts: Sequence[str], scores: ClipScores
) -> Iterator[Candidate]:
    """Yield each candidate compared with the text about its own image."""
    for one in tried:
        fit = scores.fit(texts[one.side], keys[one.side], one.element.key)
        if fit:
            yield one.scored(fit)


def pick(
    key: str, candidates: Iterable[Candidate], config: RejectionsConfig, *, shown: Sequence[ImageRow] = ()
) -> RejectionRow | Dropped:
    """Return the row of a pair or preference: the best candidate, or the profile's way out.

    Args:
        key: of the pair or preference.
        candidates: all that were scored.
        config: which may be chosen, and what there is where none may.
        shown: its images, of which a crop may be drawn; none: there is no crop.
    """
    found = list(candidates)
    able = [one for one in found if not one.score.why]
    best = min((one for one in able if one.score.score > config.min_drop), key=lambda one: one.rank, default=None)
    scores = tuple(replace(one.score, chosen=one is best) for one in found)
    row = RejectionRow(key="", source_key=key, subject=key, maker="", removal_scores=scores)
    if best:
        return _named(replace(row, maker="removal", side=best.score.side, element=best.element.key))
    why = NO_DROP if able else NONE_PASSED if found else NO_ELEMENT
    if config.fallback == "drop":
        return Dropped(source_key=key, reason=NO_IMAGE, detail=why)
    row = replace(row, why=why)
    return _named(_cropped(row, shown, config) if config.fallback == "crop" and shown else row)


def _cropped(row: RejectionRow, shown: Sequence[ImageRow], config: RejectionsConfig) -> RejectionRow:
    """Return the row with a crop of one of the images; as it is where the crop would be all of it."""
    rng = Random(make_key("crop", config.seed, row.subject))
    side = rng.randrange(len(shown))
    window = draw_crop(rng, shown[side].width, shown[side].height, area=(config.min_crop_area, config.max_crop_area))
    return replace(row, maker="crop", side=side, window=window) if window else row


def _named(row: RejectionRow) -> RejectionRow:
    """Return the row under the key of what it says."""
    scores = [f"{one.removal} {one.side} {one.score} {one.clip} {one.why}" for one in row.removal_scores]
    said = f"{row.maker} {row.side} {row.element} {row.window} {row.why}"
    return replace(row, key=make_key("rejection", row.subject, said, *scores))
