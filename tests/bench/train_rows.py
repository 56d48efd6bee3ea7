"""Make preferences about two images each."""

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image

from pairwright.schemas.rows import PreferenceRow, Turn, make_key
from tests.fixtures.rows import row_of

SPLIT = "train"
WORDS = 300
ANSWER, LONG_ANSWER = (
    (25, 55),
    (150, 250),
)  # words of an answer, from and up to; nearly each word is one token
PROMPT = 20


def make_row(asked: str, chosen: str, rejected: str, images: Sequence[bytes]) -> PreferenceRow:
    """Return a preference about these encoded images."""
    key, keys = (
        make_key(asked, chosen, rejected, *images),
        tuple(make_key(image) for image in images),
    )
    said = {"prompt": (Turn(role="user", text=asked),), "chosen": chosen, "rejected": rejected}
    return row_of(
        PreferenceRow,
        source=key,
        key=key,
        images=tuple(images),
        image_keys=keys,
        split=SPLIT,
        **said,
    )


def make_rows(
    count: int, *, side: int, answer: tuple[int, int] = ANSWER, seed: int = 0
) -> list[PreferenceRow]:
    """Return rows with two square JPEG images and answers of so many words."""
    rng = np.random.default_rng(seed)
    words = make_words(rng)
    return [
        make_row(
            _sentence(words, PROMPT, rng),
            _sentence(words, int(rng.integers(*answer)), rng),
            _sentence(words, int(rng.integers(*answer)), rng),
            [make_picture((side, side), rng, kind="JPEG") for _ in range(2)],
        )
        for _ in range(count)
    ]


def make_words(rng: np.random.Generator) -> list[str]:
    """Return words that can be read out, all different."""
    parts = [
        "ba",
        "de",
        "fi",
        "go",
        "hu",
        "ka",
        "le",
        "mi",
        "no",
        "pu",
        "ra",
        "se",
        "ti",
        "vo",
        "wu",
        "zy",
    ]
    numbers = rng.permutation(len(parts) ** 2 * 4)[:WORDS]
    return [parts[n % 16] + parts[n // 16 % 16] + ["", "n", "s", "r"][n // 256] for n in numbers]


def _sentence(words: Sequence[str], count: int, rng: np.random.Generator) -> str:
    return " ".join(words[n] for n in rng.integers(len(words), size=count))


def make_picture(size: tuple[int, int], rng: np.random.Generator, *, kind: str = "PNG") -> bytes:
    """Return an encoded image of height and width ``size``: coarse random blocks."""
    small = rng.integers(0, 256, (size[0] // 14, size[1] // 14, 3), dtype=np.uint8)
    sink = io.BytesIO()
    Image.fromarray(small).resize(size[::-1], Image.Resampling.NEAREST).save(sink, kind)
    return sink.getvalue()
