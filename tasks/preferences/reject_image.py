"""Make the images of a preference with the rejected one in its place.

Reads what was chosen to reject a text, and the patch of the chosen removal; writes nothing. One image is decoded and
encoded, of the other the source's own bytes stay.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.rows import Dropped, RejectionRow, RemovalRow
from pairwright.tasks.store.images import RefusedImageError, decode_rgb, put_patch, show_window
from pairwright.tasks.store.masks import encode_patch

NOT_MADE = "its rejected image cannot be made"


def reject_image(
    images: Sequence[bytes], rejection: RejectionRow | None, removals: Mapping[str, RemovalRow]
) -> tuple[bytes, ...] | Dropped:
    """Return the images, one of them altered (PNG); none where nothing rejects them; or why the preference has to go.

    ``removals``: by element, those that were chosen.
    """
    if rejection is None or not rejection.maker:
        return ()
    try:
        pixels = decode_rgb(images[rejection.side])
    except RefusedImageError as refused:
        return Dropped(source_key=rejection.subject, reason=refused.reason, detail=refused.detail)
    try:
        made = encode_patch(_altered(pixels, rejection, removals))
    except (LookupError, ValueError, RefusedImageError) as error:
        return Dropped(source_key=rejection.subject, reason=NOT_MADE, detail=f"{rejection.maker}: {error}")
    return tuple(made if side == rejection.side else image for side, image in enumerate(images))


def _altered(
    pixels: NDArray[np.uint8], rejection: RejectionRow, removals: Mapping[str, RemovalRow]
) -> NDArray[np.uint8]:
    """Return the image without the element, or what the window shows of it: as large, so that it has as many tokens."""
    if rejection.maker == "crop":
        return show_window(pixels, rejection.window)
    if rejection.element not in removals:
        raise LookupError(f"no removal of {rejection.element}")
    removal = removals[rejection.element]
    return put_patch(pixels, removal.patch, removal.window)
