"""Build preferences for trainers: a prompt about images, a chosen text, and rejected texts and images.

Reads ``PairRow`` with everything about it, and ``PreferenceRow`` as a source gave it; writes
``PreferenceRow``: rejected text, ranked further negatives and rejected images in one record.
Rejected texts come from the makers that are on in the build. Of removals, only the chosen one is
read. If the claims of all texts of a pair are known, they are worded as a drawn kind of text, and
the prompt asks for that kind (ours). People's texts stay unchanged; each of several texts about a
pair has its own preference. A row without anything rejected trains all objectives that do not need
it. Of a rejected image's pair one image is decoded and encoded, the other keeps the source's bytes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Literal

from pairwright.prompts import load_wordings
from pairwright.schemas.claims import CLAIMS
from pairwright.schemas.config import PreferencesConfig
from pairwright.schemas.removing import NO_IMAGE, SEVERAL
from pairwright.schemas.rows import (
    MAKERS,
    NO_ROWS,
    CheckRow,
    DifferenceRow,
    Dropped,
    ImageRow,
    Negative,
    PairRow,
    PreferenceRow,
    RejectedTextRow,
    RejectionRow,
    RemovalRow,
    SplitRow,
    Turn,
    make_key,
)
from pairwright.tasks.images.decode import RefusedImageError, decode_rgb, put_patch, show_window
from pairwright.tasks.images.masks import encode_patch
from pairwright.tasks.store.stage import Stage, Uses
from pairwright.tasks.texts.say_claims import KINDS, OF_ANY_PAIR, Kind, say_claims

PROMPT = "ask_difference"
SHARES: Mapping[Kind, int] = {"template": 1, "changes": 4, "sentences": 2, "list": 2, "short": 4}
"""Weights of the kinds of texts; the template, the kind of the descriptions, is the rarest."""
ASKING: Mapping[str, str] = {
    "template": "ask"
}  # wordings of the question by kind of text, if named otherwise
NOT_MADE = "its rejected image cannot be made"


def build_preferences(
    rows: Sequence[PairRow | PreferenceRow],
    config: PreferencesConfig,
    *,
    splits: Mapping[str, SplitRow] = NO_ROWS,
    images: Mapping[str, ImageRow] = NO_ROWS,
    differences: Mapping[str, tuple[DifferenceRow, ...]] = NO_ROWS,
    rejections: Mapping[str, RejectionRow] | None = None,
    removals: Mapping[str, RemovalRow] = NO_ROWS,
    judged_rejected: Mapping[str, tuple[CheckRow, ...]] = NO_ROWS,
    **texts: Mapping[str, tuple[RejectedTextRow, ...]],
) -> Iterator[PreferenceRow | Dropped]:
    """Yield one preference per description of each pair, or why there is none; it may reject nothing.

    A source's preference stays unchanged, except for its rejected image. If images are rejected, a
    pair or preference without one of ``rejections`` (by key; ``None``: no images are rejected) is
    dropped until it has one. ``removals`` are by element. ``texts``: by maker, of any of
    ``MAKERS``; those that a judge found right (``judged_rejected``) are omitted.
    """
    for pair in rows:
        rejection = rejections.get(pair.key) if rejections is not None else None
        if isinstance(pair, PreferenceRow):
            untouched = rejections is None
            yield (
                replace(pair, source_key=pair.key)
                if untouched
                else _reject_given(pair, rejection, removals)
            )
            continue
        described, split = differences.get(pair.key), splits.get(pair.key)
        if described is None or split is None:
            yield Dropped(source_key=pair.key, reason="no difference description")
            continue
        if rejections is not None and rejection is None:
            yield Dropped(source_key=pair.key, reason=NO_IMAGE)
            continue
        shown = (images[pair.first], images[pair.second])
        altered = reject_image([image.image for image in shown], rejection, removals)
        if isinstance(altered, Dropped):
            yield altered
            continue
        right = {check.description for check in judged_rejected.get(pair.key, ()) if check.passed}
        made = [text for maker in MAKERS for text in texts.get(maker, NO_ROWS).get(pair.key, ())]
        for difference in described:
            own = [
                text
                for text in made
                if text.description == difference.key and text.key not in right
            ]
            kind, told, rejected = tell(pair, difference, own, shown=shown, config=config)
            ranked = list(rank_texts(pair, rejected, config))
            prompt = ask(pair, kind, config)
            made_of = [
                *(text.text for text in ranked),
                rejection.key if rejection else "",
                split.split,
            ]
            first = ranked[0] if ranked else None
            yield PreferenceRow(
                key=make_key(pair.key, told.text, prompt, *made_of),
                source_key=pair.key,
                subject=pair.key,
                prompt=(Turn(role="user", text=prompt),),
                images=tuple(image.image for image in shown),
                image_keys=tuple(image.key for image in shown),
                chosen=told.text,
                chosen_model=told.model,
                rejected=first.text if first else "",
                rejected_maker=first.maker if first else "",
                rejected_note=first.note if first else "",
                negatives=tuple(
                    Negative(text=t.text, maker=t.maker, note=t.note, score=t.score)
                    for t in ranked[1:]
                ),
                rejected_images=altered,
                removal_scores=rejection.removal_scores if rejection else (),
                component=split.component,
                split=split.split,
                sources=tuple(image.source for image in shown),
                licences=tuple(image.licence for image in shown),
                rejected_image_maker=rejection.maker if rejection else "",
                kind=kind,
                description="" if told is difference else difference.text,
                claims=told.claims,
                rejected_claims=first.claims if first else "[]",
            )


def tell(
    pair: PairRow,
    difference: DifferenceRow,
    rejected: Sequence[RejectedTextRow],
    *,
    shown: Sequence[ImageRow],
    config: PreferencesConfig,
) -> tuple[Kind | Literal["given"], DifferenceRow, Sequence[RejectedTextRow]]:
    """Word the texts of a pair as a kind drawn by its key: the template if some of their claims are unknown.

    Photographs of two scenes are not described as changes. A kind that words a rejected text like
    the chosen one is skipped. The same description is returned where its text stays.
    """
    worlds = {image.group for image in shown}
    kinds = KINDS if len(worlds) == 1 and all(worlds) else OF_ANY_PAIR
    weights = [SHARES[kind] for kind in kinds]
    drawn = Random(make_key("kind", config.seed, pair.key)).sample(
        kinds, sum(weights), counts=weights
    )
    is_known = all(row.claims not in ("", "[]") for row in (difference, *rejected))
    for kind in drawn[: drawn.index("template")] if is_known else ():
        texts = [
            say_claims(
                CLAIMS.validate_json(row.claims),
                kind,
                Random(make_key("told", config.seed, pair.key)),
            )
            for row in (difference, *rejected)
        ]
        if texts[0] not in texts[1:]:
            own = [replace(row, text=text) for row, text in zip(rejected, texts[1:], strict=True)]
            return kind, replace(difference, text=texts[0]), own
    return "given" if difference.is_given else "template", difference, rejected


def reject_image(
    images: Sequence[bytes], rejection: RejectionRow | None, removals: Mapping[str, RemovalRow]
) -> tuple[bytes, ...] | Dropped:
    """Return the images with the rejected one (PNG), none without a rejection, or why the preference is dropped.

    ``removals``: the chosen ones, by element.
    """
    if rejection is None or not rejection.maker:
        return ()
    try:
        pixels = decode_rgb(images[rejection.side])
    except RefusedImageError as refused:
        return Dropped(source_key=rejection.subject, reason=refused.reason, detail=refused.detail)
    try:
        if rejection.maker == "crop":  # shown at full size, for an equal number of tokens
            altered = show_window(pixels, rejection.window)
        else:
            removal = removals[rejection.element]
            altered = put_patch(pixels, removal.patch, removal.window)
        made = encode_patch(altered)
    except (LookupError, ValueError, RefusedImageError) as error:
        return Dropped(
            source_key=rejection.subject, reason=NOT_MADE, detail=f"{rejection.maker}: {error}"
        )
    return tuple(made if side == rejection.side else image for side, image in enumerate(images))


def _reject_given(
    row: PreferenceRow, rejection: RejectionRow | None, removals: Mapping[str, RemovalRow]
) -> PreferenceRow | Dropped:
    """Return a source's preference with its rejected image and scores, under a new key."""
    if rejection is None:
        return Dropped(source_key=row.key, reason=SEVERAL if len(row.image_keys) != 1 else NO_IMAGE)
    images = reject_image(row.images, rejection, removals)
    if isinstance(images, Dropped):
        return images
    return replace(
        row,
        key=make_key("preference", row.key, rejection.key),
        source_key=row.key,
        rejected_images=images,
        removal_scores=rejection.removal_scores,
        rejected_image_maker=rejection.maker,
    )


def rank_texts(
    pair: PairRow, texts: Sequence[RejectedTextRow], config: PreferencesConfig
) -> Iterator[RejectedTextRow]:
    """Yield the rejected text, then the others, the closest to the chosen text first.

    By default the rejected one is drawn among the makers (ours), since their scores are not
    comparable and one of them would always win. With ``own``, a model's own texts come first. Equal
    texts have the first maker's name.
    """
    by_text: dict[str, RejectedTextRow] = {}
    own = config.rejected == "own"
    for text in sorted(
        texts, key=lambda text: (own and text.maker != "sampled", -text.score, text.maker)
    ):
        by_text.setdefault(text.text, text)
    ranked = list(by_text.values())
    if config.rejected == "drawn" and ranked:
        ranked.insert(
            0,
            ranked.pop(Random(make_key("rejected", config.seed, pair.key)).randrange(len(ranked))),
        )
    yield from ranked


def ask(pair: PairRow, kind: str, config: PreferencesConfig) -> str:
    """Return a question for the kind, in a wording drawn by the pair's key and the seed."""
    return load_wordings(PROMPT).say(
        ASKING.get(kind, kind), Random(make_key("ask", config.seed, pair.key))
    )


STAGE = Stage(
    name="preferences",
    version=8,
    group="preferences",
    reads={"pairs": PairRow, "given_preferences": PreferenceRow},
    writes=PreferenceRow,
    function=build_preferences,
    config=lambda profile: profile.complete(profile.preferences),
    prompts=(PROMPT, "answer_sentences"),
    uses=(
        Uses(table="splits", row=SplitRow, counts=True),
        Uses(table="images", row=ImageRow, on="images", without=("graph", "captions")),
        Uses(table="differences", row=DifferenceRow, kind="many", counts=True),
        *(Uses(table=maker, row=RejectedTextRow, kind="many", counts=True) for maker in MAKERS),
        Uses(
            table="judged_rejected",
            row=CheckRow,
            kind="many",
            without=("text", "served"),
            counts=True,
        ),
        Uses(table="rejections", row=RejectionRow, on="key", counts=True),
        Uses(table="removals", row=RemovalRow, on="element", of="rejections", without=("mask",)),
    ),
    rows_per_shard=25,
)
