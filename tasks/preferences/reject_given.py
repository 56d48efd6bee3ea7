"""Put rejected images beside the rejected texts of preferences that a source brought (paper 004, section 3.1).

Reads ``PreferenceRow`` as the source gave it and what rejects each, writes ``PreferenceRow``: the same, with the
rejected image and every candidate's score, under a key of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pairwright.schemas.config import RejectionsConfig
from pairwright.schemas.removing import NO_IMAGE, SEVERAL
from pairwright.schemas.rows import Dropped, PreferenceRow, RejectionRow, RemovalRow, make_key
from pairwright.tasks.preferences.reject_image import reject_image
from pairwright.tasks.store.stage import Stage, Uses


def reject_given(
    rows: Sequence[PreferenceRow],
    config: RejectionsConfig,
    *,
    rejections: Mapping[str, RejectionRow],
    removals: Mapping[str, RemovalRow],
) -> Iterator[PreferenceRow | Dropped]:
    """Yield each preference with what rejects its image, or why it has to go.

    Args:
        rows: the preferences, each about one image.
        config: not looked at: what is chosen was chosen by it.
        rejections: by preference; one that has none is dropped, until there is one.
        removals: by element, those that were chosen.
    """
    del config
    for row in rows:
        rejection = rejections.get(row.key)
        if rejection is None:
            several = len(row.image_keys) != 1
            yield Dropped(source_key=row.key, reason=SEVERAL if several else NO_IMAGE)
            continue
        images = reject_image(row.images, rejection, removals)
        yield images if isinstance(images, Dropped) else _rejected(row, rejection, images)


def _rejected(row: PreferenceRow, rejection: RejectionRow, images: tuple[bytes, ...]) -> PreferenceRow:
    return replace(
        row,
        key=make_key("preference", row.key, rejection.key),
        source_key=row.key,
        rejected_images=images,
        removal_scores=rejection.removal_scores,
        rejected_image_maker=rejection.maker,
    )


STAGE = Stage(
    name="preferences",
    version=1,
    group="preferences",
    reads="given",
    row=PreferenceRow,
    writes=PreferenceRow,
    function=reject_given,
    config="rejections",
    uses=(
        Uses(table="rejections", row=RejectionRow, on="key", counts=True),
        Uses(table="removals", row=RemovalRow, on="element", of="rejections", without=("mask",)),
    ),
    rows_per_shard=25,
)
