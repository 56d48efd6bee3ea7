"""Widened numbers are NumPy's."""

import numpy as np

from tasks.models.search_exactly import widen


def test_every_finite_number_is_widened_as_numpy_does():
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)].reshape(2, -1)[:, ::-1]
    assert widen(finite).tobytes() == finite.astype(np.float32).tobytes()
    assert widen(finite[:0]).shape == (0, finite.shape[1])
