"""Find by trying how many images an encoder takes at once, and live with what does not fit.

Batches double while that makes images faster, up to a limit; out of memory halves them for good and goes on. Times
decide, so two runs may use other sizes, and a vector then differs by the rounding of its float32 sums: cosines of
1 - 1e-6 on a CPU. A fixed size leaves nothing to chance.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.errors import ModelError

log = logging.getLogger(__name__)
Floats = NDArray[np.float32]
T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")
Encode = Callable[[Sequence[NDArray[Any]]], Floats]
FIRST, MOST = 4, 512
GAIN = 1.05
"""How much faster twice the size has to be."""
TRIES = 3
"""Batches of one size that are timed; the first of them warms up, and does not count."""


class Batches:
    """Cut images into batches of a size that is found while working."""

    def __init__(self, fixed: int = 0, most: int = MOST, clock: Callable[[], float] = time.perf_counter) -> None:
        """Use batches of ``fixed`` images; 0: find the size, ``most`` at the most."""
        self.size = fixed or min(FIRST, most)
        self._most = most
        self._searching = not fixed
        self._clock = clock
        self._rates: list[float] = []
        """Images per second of the batches of the present size."""
        self._before = 0.0
        """The rate at half the size."""

    def run(self, encode: Encode, images: Sequence[NDArray[Any]]) -> Floats:
        """Return the encoder's vectors of all images, in their order.

        Raises:
            ModelError: a single image does not fit in the memory.
        """
        return np.concatenate(list(self.pieces(encode, images)))

    def each(self, work: Callable[[Sequence[T]], Sequence[U]], items: Sequence[T]) -> list[U]:
        """Return what a model makes of each item, in their order; ``work`` gives as many results as it gets items.

        Raises:
            ModelError: a single item does not fit in the memory.
        """
        return [result for results in self.pieces(work, items) for result in results]

    def pieces(self, work: Callable[[Sequence[T]], V], items: Sequence[T]) -> Iterator[V]:
        """Yield what ``work`` gives for one batch after the other.

        Raises:
            ModelError: a single item does not fit in the memory.
        """
        place = 0
        while place < len(items):
            batch = items[place : place + self.size]
            start = self._clock()
            made = _attempt(work, batch)
            if made is None:
                self._halve(len(batch))
                continue
            took = self._clock() - start  # without what the caller does with it
            yield made
            place += len(batch)
            if self._searching and len(batch) == self.size:
                self._learn(len(batch) / max(took, 1e-9))

    def _halve(self, size: int) -> None:
        if size == 1:
            raise ModelError("out of memory with a single image: use a smaller model, or fewer run.workers")
        self.size = self._most = size // 2
        self._searching = False
        _free()
        log.warning("out of memory with %d images at once; going on with %d", size, self.size)

    def _learn(self, rate: float) -> None:
        self._rates.append(rate)
        if len(self._rates) < TRIES:
            return
        rate = max(self._rates[1:])
        self._rates = []
        if rate < GAIN * self._before:
            self.size, self._searching = self.size // 2, False
        elif 2 * self.size > self._most:
            self._searching = False
        else:
            self.size, self._before = 2 * self.size, rate
        if not self._searching:
            log.info("batches of %d images", self.size)


def _attempt(work: Callable[[Sequence[T]], V], batch: Sequence[T]) -> V | None:
    """Return the results, or ``None`` when the memory did not suffice (the error, and what it holds, is then gone)."""
    try:
        return work(batch)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    return None


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether an error means that a device or the machine has no memory left; PyTorch words it by device."""
    words = str(error).lower()
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "not enough memory" in words
        or "can't allocate memory" in words
        or "out of memory" in words
        or "alloc_failed" in words  # what cuBLAS, cuDNN and cuFFT say where their work space does not fit
    )


def _free() -> None:
    """Give back what PyTorch keeps for later."""
    import sys

    torch = sys.modules.get("torch")  # whoever fills a GPU has loaded it
    if torch and torch.cuda.is_available():
        torch.cuda.empty_cache()
