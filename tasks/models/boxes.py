"""Boxes of a detector as rows: clipped to the image, overlapping ones of a tag left out."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pairwright.schemas.rows import Box

if TYPE_CHECKING:
    from torch import Tensor

SCORE_DIGITS = 4
PIXEL_DIGITS = 2
"""Digits of a written box: later ones depend on the batch size."""


def suppress_boxes(
    tag: int,
    result: "Mapping[str, Tensor]",
    size: tuple[int, int],
    *,
    max_iou: float,
) -> Iterator[Box]:
    """Yield a tag's boxes, clipped to the image, without those that overlap a better one."""
    from torchvision.ops import clip_boxes_to_image, nms

    corners = clip_boxes_to_image(result["boxes"], size)
    scores = result["scores"]
    is_whole = (corners[:, 2:] > corners[:, :2]).all(dim=1)
    (whole,) = is_whole.nonzero(as_tuple=True)
    best = nms(corners[whole], scores[whole], max_iou)
    for position in whole[best].tolist():
        score = float(scores[position])
        yield make_box(tag, score, corners[position].tolist())


def make_box(tag: int, score: float, corners: Sequence[float]) -> Box:
    """Return a rounded box."""
    x0, y0, x1, y1 = (round(corner, PIXEL_DIGITS) for corner in corners)
    return Box(
        tag=tag,
        score=round(score, SCORE_DIGITS),
        x0=x0,
        y0=y0,
        x1=x1,
        y1=y1,
    )
