"""What pixels are made of, by hand; whole masks are compared with the package's in ``test_sam_geometry``."""

import numpy as np
import torch

from pairwright.tasks.models.sam.enlarge_masks import enlarge_masks, make_side

LOGITS = torch.zeros(1, 4, 4)


def test_weights_by_hand():
    # 4 logits cover a square of 8, of which 6 are shown, as 3 pixels. Pixels of the square lie at quarters between
    # logits: the first sees logit 0 alone, the next are 3/4 + 1/4 and 1/4 + 3/4. A pixel is the mean of two of them.
    side = make_side(LOGITS, square=8, shown=6, pixels=3)
    wanted = [[0.875, 0.125, 0, 0], [0.125, 0.75, 0.125, 0], [0, 0.125, 0.75, 0.125]]
    np.testing.assert_allclose(side.weights, wanted, atol=1e-6)
    assert (side.first.tolist(), side.last.tolist()) == ([0, 0, 1], [1, 2, 3])


def test_windows_by_hand():
    side = make_side(LOGITS, square=8, shown=6, pixels=3)
    assert side.window(np.array([True, False, False, False])) == (slice(0, 2), slice(0, 3))
    assert side.window(np.array([False, False, False, True])) == (slice(2, 3), slice(1, 4))
    assert side.window(np.array([True, False, False, True])) == (slice(0, 3), slice(0, 4))
    padded = make_side(LOGITS, square=8, shown=2, pixels=3)
    assert padded.window(np.array([False, False, False, True])) == (slice(0, 0), slice(0, 0))


def test_masks_by_hand():
    logits = torch.full((2, 4, 4), -1.0)
    logits[0, 2, 0] = 1  # the third row of logits, the first column
    across, down = (make_side(logits, square=8, shown=8, pixels=4) for _ in range(2))
    first, empty = enlarge_masks(logits, across, down)
    # Pixels are the logits' own places; those beside see an eighth of them.
    assert (first.left, first.top) == (0, 1)
    assert first.mask.tolist() == [[False, True, False], [False, False, False]]
    assert empty.mask.shape == (0, 0)
    (padding,) = enlarge_masks(logits[:1], across, make_side(logits, square=8, shown=2, pixels=4))
    assert not padding.mask.any()
