"""Index which image has which nouns: an image's nouns by how rare they are, a noun's images in an order that is drawn.

Reads an Arrow table of all images' nouns, writes arrays of numbers: 56 bytes per image, 12 per noun that an image has,
and while they are made some 60 per noun. Nothing in it depends on the order of the table.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairwright.schemas.config import NounPairsConfig
from pairwright.schemas.rows import make_key

Keys = NDArray[np.bytes_]
Numbers = NDArray[np.int64]
Short = NDArray[np.int32]


class Lists(NamedTuple):
    """Hold the index: the nouns of image ``i`` are ``image_nouns[image_starts[i]:image_starts[i + 1]]``."""

    image_starts: Numbers
    image_nouns: Short  # rarest first
    places: Short  # where the image stands in each of these nouns' lists
    noun_starts: Numbers
    noun_images: Short  # rising
    draws: NDArray[np.uint64]  # a random number of each image, by which they are numbered


@dataclass(frozen=True)
class NounIndex:
    """Number the images in an order drawn by the seed, and the nouns by how many images have them, rarest first."""

    keys: Keys
    """Of the images, by number."""
    by_key: Numbers
    """The numbers in the order of the keys."""
    words: list[str]
    """The nouns, by number."""
    lists: Lists

    def numbers_of(self, keys: list[str]) -> Numbers:
        """Return the numbers of images that are in the index."""
        wanted = np.array(keys, dtype=self.keys.dtype)
        return self.by_key[np.searchsorted(self.keys, wanted, sorter=self.by_key)]

    def nouns_of(self, number: int) -> list[int]:
        """Return the numbers of an image's nouns, rarest first."""
        start, stop = self.lists.image_starts[number : number + 2]
        return self.lists.image_nouns[start:stop].tolist()


def build_index(images: pa.Table, config: NounPairsConfig) -> NounIndex:
    """Return the index of ``subject`` and ``nouns`` of every image, words of the stop list left out."""
    subjects = images.column("subject").to_pylist()
    draws = _draws(subjects, config.seed)
    keys = np.array(subjects, dtype="S32")
    order = np.lexsort((keys, draws))
    owners, codes, words = _entries(images.column("nouns").take(pa.array(order)), config)
    lists = _lists(owners, codes, draws=draws[order], n_nouns=len(words))
    return NounIndex(keys[order], np.argsort(keys[order]), words, lists)


def _draws(subjects: list[str], seed: int) -> NDArray[np.uint64]:
    """Return a number for each image, drawn by its key and the seed: a finaliser's mix of both (MurmurHash3)."""
    halves = np.frombuffer(bytes.fromhex("".join(subjects)), dtype=">u8").reshape(-1, 2)
    mixed = halves[:, 0].astype(np.uint64) ^ np.uint64(int(make_key("noun pairs", seed), 16) >> 64)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(33))


def _entries(nouns: pa.ChunkedArray, config: NounPairsConfig) -> tuple[Numbers, Numbers, list[str]]:
    """Return image and noun of every entry, sorted by both, and the words; nouns are numbered rarest first."""
    stopped = {word.casefold() for word in config.stop_words}
    lists = nouns.combine_chunks()
    lengths = lists.value_lengths().to_numpy()
    coded = lists.flatten().dictionary_encode()
    words = coded.dictionary.to_pylist()
    codes = coded.indices.to_numpy()
    kept = np.array([word not in stopped for word in words], dtype=bool)[codes]
    owners, codes = np.repeat(np.arange(len(lengths)), lengths)[kept], codes[kept]
    counts = np.bincount(codes, minlength=len(words))
    ranked = sorted(np.flatnonzero(counts).tolist(), key=lambda code: (counts[code], words[code]))
    ranks = np.zeros(len(words), dtype=np.int64)
    ranks[ranked] = np.arange(len(ranked))
    codes = ranks[codes]
    order = np.lexsort((codes, owners))
    return owners[order], codes[order], [words[code] for code in ranked]


def _lists(owners: Numbers, codes: Numbers, *, draws: NDArray[np.uint64], n_nouns: int) -> Lists:
    by_noun = np.argsort(codes, kind="stable")  # the images of one noun stay in their order
    image_starts = np.append(0, np.cumsum(np.bincount(owners, minlength=len(draws))))
    noun_starts = np.append(0, np.cumsum(np.bincount(codes, minlength=n_nouns)))
    places = np.empty(len(codes), dtype=np.int32)
    places[by_noun] = np.arange(len(codes)) - noun_starts[codes[by_noun]]
    return Lists(
        image_starts=image_starts,
        image_nouns=codes.astype(np.int32),
        places=places,
        noun_starts=noun_starts,
        noun_images=owners[by_noun].astype(np.int32),
        draws=draws,
    )
