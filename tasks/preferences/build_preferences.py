"""Build preferences: a prompt about images, a chosen text, and rejected texts and images.

Reads ``PairRow`` with the tables about it, and ``PreferenceRow`` as a source gave it; writes
``PreferenceRow``: rejected text, ranked further negatives and rejected images in one record.
Rejected texts come from the methods that are on in the build. Of the removals, only the chosen one
is read. If the claims of all texts of a pair are known, they are worded as a drawn kind of text,
and the prompt asks for that kind (ours). People's texts stay unchanged; each of several texts about
a pair has its own preference. A row without any rejected text or image trains the objectives that
need none. Of a rejected image's pair one image is decoded and encoded, the other keeps the source's
bytes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from pairwright.prompts import load_wordings
from pairwright.schemas.config import PreferencesConfig
from pairwright.schemas.removing import NO_IMAGE, SEVERAL
from pairwright.schemas.rows import (
    MAKERS,
    NO_ROWS,
    CheckRow,
    DifferenceRow,
    Dropped,
    ExpectedRow,
    ImageRow,
    Negative,
    PairRow,
    PreferenceRow,
    RejectedTextRow,
    RejectionRow,
    RemovalRow,
    SplitRow,
    Turn,
    WithheldRow,
    make_key,
)
from pairwright.tasks.images.decode import RefusedImageError, decode_rgb, put_patch, show_window
from pairwright.tasks.images.masks import encode_patch
from pairwright.tasks.preferences.word_texts import select_false, word_texts
from pairwright.tasks.store.stage import Stage, Uses

PROMPT = "ask_difference"
# Kinds of wordings of the question by kind of text, where the names differ.
ASKING: Mapping[str, str] = {"template": "ask"}
OWN_MAKERS = ("sampled", "blind")
"""Makers of texts that a model wrote itself."""
EXPECTED = "expected"
"""Maker of images in which a thing is as the dataset's prior has it."""
NOT_MADE = "its rejected image cannot be made"


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class PreferenceInputs:
    """Rows that decide whether a pair, or a source's preference, is dropped."""

    row: PairRow | PreferenceRow
    differences: Sequence[DifferenceRow] | None
    split: SplitRow | None
    rejection: RejectionRow | None
    withheld: WithheldRow | None
    rejects_images: bool

    @property
    def lacks_description(self) -> bool:
        """Return whether the pair has no description, or is in no split."""
        return self.differences is None or self.split is None

    @property
    def lacks_rejection(self) -> bool:
        """Return whether images are rejected in this build, but none of this row."""
        return self.rejects_images and self.rejection is None

    @property
    def lacks_single_image(self) -> bool:
        """Return whether a source's preference has no rejection since it has not one image."""
        if not isinstance(self.row, PreferenceRow):
            return False
        return self.lacks_rejection and len(self.row.image_keys) != 1


Refusals = Sequence[tuple[Callable[[PreferenceInputs], bool], str]]
PAIR_REFUSALS: Refusals = (
    (lambda inputs: inputs.lacks_description, "no difference description"),
    (lambda inputs: inputs.lacks_rejection, NO_IMAGE),
)
GIVEN_REFUSALS: Refusals = (
    (lambda inputs: inputs.lacks_single_image, SEVERAL),
    (lambda inputs: inputs.lacks_rejection, NO_IMAGE),
)
"""Conditions under which a row is dropped, with their reasons; the first that applies counts."""


def _refuse(inputs: PreferenceInputs, refusals: Refusals) -> Dropped | None:
    for applies, reason in refusals:
        if applies(inputs):
            return Dropped(source_key=inputs.row.key, reason=reason)
    return None


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
    withheld: Mapping[str, WithheldRow] = NO_ROWS,
    expected: Mapping[str, ExpectedRow] = NO_ROWS,
    **texts: Mapping[str, tuple[RejectedTextRow, ...]],
) -> Iterator[PreferenceRow | Dropped]:
    """Yield one preference per description of each pair, or why there is none.

    A source's preference stays unchanged, except for its rejected image. If images are rejected, a
    pair or preference without one of ``rejections`` (by key; ``None``: no images are rejected) is
    dropped until it has one. ``removals`` are by element. ``texts``: by method, of any of
    ``MAKERS``; those that a judge found true (``judged_rejected``), or that are right elsewhere
    (``withheld``), are omitted. A preference may have no rejected text. An image that the prior
    expects (``expected``) is rejected instead of others.
    """
    for row in rows:
        inputs = PreferenceInputs(
            row=row,
            differences=differences.get(row.key),
            split=splits.get(row.key),
            rejection=_find_rejection(row.key, rejections, expected),
            withheld=withheld.get(row.key),
            rejects_images=rejections is not None,
        )
        if isinstance(row, PreferenceRow):
            yield _copy_given(row, inputs, removals)
            continue
        refused = _refuse(inputs, PAIR_REFUSALS)
        if refused:
            yield refused
            continue
        pair_images = (images[row.first], images[row.second])
        false_texts = select_false(row.key, texts, judged_rejected.get(row.key, ()))
        yield from _make_preferences(
            row,
            inputs,
            images=pair_images,
            removals=removals,
            expected=expected,
            false_texts=false_texts,
            config=config,
        )


def _find_rejection(
    key: str,
    rejections: Mapping[str, RejectionRow] | None,
    expected: Mapping[str, ExpectedRow],
) -> RejectionRow | None:
    """Return a row's rejection, that of its expected image first; ``None``: it has none."""
    rejection = None if rejections is None else rejections.get(key)
    row = expected.get(key)
    if row is None:
        return rejection
    return RejectionRow(
        key=row.key,
        source_key=row.source_key,
        subject=row.subject,
        maker=EXPECTED,
        side=row.side,
    )


def _make_preferences(
    pair: PairRow,
    inputs: PreferenceInputs,
    *,
    images: Sequence[ImageRow],
    removals: Mapping[str, RemovalRow],
    expected: Mapping[str, ExpectedRow],
    false_texts: Sequence[RejectedTextRow],
    config: PreferencesConfig,
) -> Iterator[PreferenceRow | Dropped]:
    """Yield a preference per description; all have the same rejected image."""
    rejection = inputs.rejection
    rejected_images = reject_image([image.image for image in images], rejection, removals, expected)
    if isinstance(rejected_images, Dropped):
        yield rejected_images
        return
    for difference in inputs.differences or ():
        preference = _make_preference(
            pair,
            difference,
            inputs,
            images=images,
            rejected=[text for text in false_texts if text.description == difference.key],
            config=config,
        )
        if rejection is None:
            yield preference
        else:
            yield _add_images(preference, rejection, rejected_images)


def _make_preference(
    pair: PairRow,
    difference: DifferenceRow,
    inputs: PreferenceInputs,
    *,
    images: Sequence[ImageRow],
    rejected: Sequence[RejectedTextRow],
    config: PreferencesConfig,
) -> PreferenceRow:
    """Return the preference of one description, without rejected images."""
    split = inputs.split
    assert split is not None
    kind, chosen, rejected = word_texts(
        pair,
        difference,
        rejected,
        groups=[image.group for image in images],
        config=config,
    )
    withheld = inputs.withheld.texts if inputs.withheld else ()
    kept = [text for text in rejected if text.key not in withheld]
    ranked = list(rank_texts(pair, kept, config))
    prompt = draw_prompt(pair, kind, config)
    key_parts = [chosen.text, prompt]
    key_parts += [text.text for text in ranked]
    key_parts += [inputs.rejection.key if inputs.rejection else "", split.split]
    preference = PreferenceRow(
        key=make_key(pair.key, *key_parts),
        source_key=pair.key,
        subject=pair.key,
        prompt=(Turn(role="user", text=prompt),),
        images=tuple(image.image for image in images),
        image_keys=tuple(image.key for image in images),
        chosen=chosen.text,
        chosen_model=chosen.model,
        component=split.component,
        split=split.split,
        sources=tuple(image.source for image in images),
        licences=tuple(image.licence for image in images),
        kind=kind,
        description="" if chosen is difference else difference.text,
        claims=chosen.claims,
    )
    return _add_texts(preference, ranked)


def _add_texts(preference: PreferenceRow, ranked: Sequence[RejectedTextRow]) -> PreferenceRow:
    """Return the preference with the first text as the rejected one, the others as negatives."""
    if not ranked:
        return preference
    first, *others = ranked
    negatives = [
        Negative(
            text=text.text,
            maker=text.maker,
            note=text.note,
            score=text.score,
        )
        for text in others
    ]
    return replace(
        preference,
        rejected=first.text,
        rejected_maker=first.maker,
        rejected_note=first.note,
        rejected_claims=first.claims,
        negatives=tuple(negatives),
    )


def _add_images(
    preference: PreferenceRow,
    rejection: RejectionRow,
    images: tuple[bytes, ...],
) -> PreferenceRow:
    """Return the preference with its rejected images."""
    return replace(
        preference,
        rejected_images=images,
        removal_scores=rejection.removal_scores,
        rejected_image_maker=rejection.maker,
    )


def reject_image(
    images: Sequence[bytes],
    rejection: RejectionRow | None,
    removals: Mapping[str, RemovalRow],
    expected: Mapping[str, ExpectedRow] = NO_ROWS,
) -> tuple[bytes, ...] | Dropped:
    """Return the images with the rejected one (PNG), or why the preference is dropped.

    Without a rejection, return no images. ``removals``: the chosen ones, by element; ``expected``:
    those that the prior expects, by pair.
    """
    if rejection is None or not rejection.maker:
        return ()
    try:
        pixels = decode_rgb(images[rejection.side])
    except RefusedImageError as refused:
        return Dropped(
            source_key=rejection.subject,
            reason=refused.reason,
            detail=refused.detail,
        )
    try:
        if rejection.maker == "crop":  # shown at full size, for an equal number of tokens
            altered = show_window(pixels, rejection.window)
        elif rejection.maker == EXPECTED:
            change = expected[rejection.subject]
            altered = put_patch(pixels, change.patch, change.window)
        else:
            removal = removals[rejection.element]
            altered = put_patch(pixels, removal.patch, removal.window)
        rejected_image = encode_patch(altered)
    except (LookupError, ValueError, RefusedImageError) as error:
        detail = f"{rejection.maker}: {error}"
        return Dropped(
            source_key=rejection.subject,
            reason=NOT_MADE,
            detail=detail,
        )
    pair_images = list(images)
    pair_images[rejection.side] = rejected_image
    return tuple(pair_images)


def _copy_given(
    row: PreferenceRow,
    inputs: PreferenceInputs,
    removals: Mapping[str, RemovalRow],
) -> PreferenceRow | Dropped:
    """Return a source's preference; where images are rejected, with its own and under a new key."""
    refused = _refuse(inputs, GIVEN_REFUSALS)
    if refused:
        return refused
    rejection = inputs.rejection
    if rejection is None:
        return replace(row, source_key=row.key)
    rejected_images = reject_image(row.images, rejection, removals)
    if isinstance(rejected_images, Dropped):
        return rejected_images
    key = make_key("preference", row.key, rejection.key)
    preference = replace(row, key=key, source_key=row.key)
    return _add_images(preference, rejection, rejected_images)


def rank_texts(
    pair: PairRow,
    texts: Sequence[RejectedTextRow],
    config: PreferencesConfig,
) -> Iterator[RejectedTextRow]:
    """Yield the rejected text, then the others, the closest to the chosen text first.

    By default the rejected one is drawn among the methods (ours), since their scores are not
    comparable and one of them would always win. With ``own``, a model's own texts come first; with
    a maker's name, that maker's. Equal texts have the first method's name.
    """
    first_makers = OWN_MAKERS if config.rejected == "own" else (config.rejected,)

    def sort_key(text: RejectedTextRow) -> tuple[bool, float, str]:
        return text.maker not in first_makers, -text.score, text.maker

    by_text: dict[str, RejectedTextRow] = {}
    for text in sorted(texts, key=sort_key):
        by_text.setdefault(text.text, text)
    ranked = list(by_text.values())
    if config.rejected == "drawn" and ranked:
        rng = Random(make_key("rejected", config.seed, pair.key))
        drawn = ranked.pop(rng.randrange(len(ranked)))
        ranked.insert(0, drawn)
    yield from ranked


def draw_prompt(
    pair: PairRow,
    kind: str,
    config: PreferencesConfig,
) -> str:
    """Return a question for the kind, in a wording drawn by the pair's key and the seed."""
    wording_kind = ASKING.get(kind, kind)
    rng = Random(make_key("ask", config.seed, pair.key))
    return load_wordings(PROMPT).say(wording_kind, rng)


def _always(_: object) -> bool:
    return True


STAGE = Stage(
    name="preferences",
    version=10,
    group="preferences",
    reads={"pairs": PairRow, "given_preferences": PreferenceRow},
    writes=PreferenceRow,
    function=build_preferences,
    config=lambda profile: profile.complete(profile.preferences),
    prompts=(PROMPT, "answer_sentences"),
    facts=_always,
    uses=(
        Uses(table="splits", row=SplitRow, counts=True),
        Uses(table="images", row=ImageRow, on="about", without=("graph", "captions"), facts=True),
        Uses(table="differences", row=DifferenceRow, kind="many", counts=True),
        *(Uses(table=maker, row=RejectedTextRow, kind="many", counts=True) for maker in MAKERS),
        Uses(
            table="judged_rejected",
            row=CheckRow,
            kind="many",
            without=("text", "served"),
            counts=True,
        ),
        Uses(table="withheld", row=WithheldRow, counts=True),
        Uses(table="rejections", row=RejectionRow, on="key", counts=True),
        Uses(table="removals", row=RemovalRow, on="about", of="rejections", without=("mask",)),
        Uses(table="expected", row=ExpectedRow, on="key", counts=True),
    ),
    rows_per_shard=25,
)
