"""The vectors by which the retriever's heads know pairs and texts: looked up by row and by text, a batch at a time.

Reads the ``embeddings`` of a dataset's images, those of all its embedders side by side, and its ``text_vectors``, both
as they are mapped from disk (``tasks.store.vectors``). State: 16 bytes per row and 8 per text; the vectors themselves
are 2 bytes per number on disk, shared by all processes of a machine, and cached in memory while there is room. For
100,000 images and texts with 768 numbers each that is 300 MB. Nothing is held on the device but a batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.store.vectors import Vectors
from pairwright.tasks.training.embed_chosen_texts import text_key
from pairwright.tasks.training.retriever.pool import Entry, Places, Pool

COPIES = "perceptual-hash"
"""The vector by which copies are told; two photographs of one scene have nearly the same."""
Floats = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Features:
    """Hold where the vectors of rows and of texts are."""

    images: tuple[NDArray[np.float16], ...]
    """Per embedder ``(images, d)`` unit vectors."""
    shown: Places
    """(n, 2) per row its first and its last image, by its place in ``images``."""
    texts: NDArray[np.float16]
    """``(vectors, d)`` unit vectors."""
    of_texts: Places
    """(T,) per text of the pool its place in ``texts``."""
    made_by: str
    """The embedders of images and of texts, in words: trained heads fit no others."""

    @property
    def sizes(self) -> tuple[int, int]:
        """Return the lengths of an image's and of a text's vector."""
        return sum(matrix.shape[1] for matrix in self.images), self.texts.shape[1]

    def pairs(self, places: Places) -> Floats:
        """Return ``(B, 2, d)``: both images' vectors of unit length, zeros where an image shows nothing."""
        rows = self.shown[places]
        joined = np.concatenate([matrix[rows] for matrix in self.images], axis=-1).astype(np.float32)
        return joined / np.sqrt(np.float32(len(self.images)))

    def words(self, ids: Places) -> Floats:
        """Return ``(N, d)``: the vectors of texts of the pool."""
        return self.texts[self.of_texts[ids]].astype(np.float32)


def map_features(
    entries: Sequence[Entry], pool: Pool, *, images: Mapping[str, Vectors], texts: Mapping[str, Vectors]
) -> Features:
    """Find the vectors of some rows and of the texts of their pool.

    Raises:
        ConfigError: the dataset has no vectors of its images or texts, or lacks some.
    """
    used = {name: vectors for name, vectors in sorted(images.items()) if name != COPIES}
    if not used or not texts:
        raise ConfigError(
            f"adpo.encoder: heads: the dataset has no vectors of its {'texts' if used else 'images'}. Set "
            "adpo.encoder=clip4idc, or build the dataset with the table embeddings"
        )
    (name, words), *_ = sorted(texts.items())
    try:
        rows = [vectors.rows_of(key for entry in entries for key in entry.images) for vectors in used.values()]
        of_texts = words.rows_of(map(text_key, pool.texts))
    except KeyError as error:
        raise ConfigError(
            "adpo.encoder: heads: an image or a chosen text has no vector: run `pairwright resume`"
        ) from error
    return Features(
        images=tuple(vectors.matrix for vectors in used.values()),
        shown=rows[0].reshape(-1, 2),
        texts=words.matrix,
        of_texts=of_texts,
        made_by=f"{'+'.join(used)} | {name} {words.matrix.shape[1]}",
    )
