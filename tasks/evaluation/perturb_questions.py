"""Make a benchmark's questions worse, as paper 001 (A.3) does: noise or fog in the images, other words in captions."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import make_key
from pairwright.tasks.evaluation.benchmark import Asked
from pairwright.tasks.evaluation.prepare_questions import Change, keep
from pairwright.tasks.serving.chat import Question
from pairwright.tasks.store.images import decode_rgb, encode_png
from pairwright.tasks.store.perturb_images import Kind, perturb_image
from pairwright.tasks.store.replace_words import replace_words

KINDS: dict[str, Kind] = {"noise": "gaussian-noise", "fog": "fog"}
SEVERITIES = range(1, 6)


def find_change(perturb: str, asked: Sequence[Asked], *, seed: int) -> Change:
    """Return what becomes of a question: noise:1 to 5, fog:1 to 5, words:SHARE; empty: nothing.

    Raises:
        ConfigError: there is no such way, or no question has words that may be changed.
    """
    if not perturb:
        return keep
    name, _, strength = perturb.partition(":")
    if name in KINDS and strength.isascii() and strength.isdigit() and int(strength) in SEVERITIES:
        return partial(_perturb_images, kind=KINDS[name], severity=int(strength), seed=seed)
    if name == "words" and (share := _share(strength)) is not None:
        if not any(one.reword for one in asked):
            raise ConfigError(f"--perturb {perturb}: this benchmark's questions hold no captions or statements")
        return partial(_replace_words, share=share, seed=seed)
    raise ConfigError(f"--perturb {perturb}: must be noise:1 to noise:5, fog:1 to fog:5, or words:0.1 to words:1")


def _share(text: str) -> float | None:
    try:
        share = float(text)
    except ValueError:
        return None
    return share if 0 < share <= 1 else None


def _perturb_images(question: Question, _asked: Asked, *, kind: Kind, severity: int, seed: int) -> Question:
    change: Callable[[bytes], bytes] = partial(_perturb, kind=kind, severity=severity, seed=seed)
    return replace(question, images=tuple(map(change, question.images)))


def _perturb(image: bytes, *, kind: Kind, severity: int, seed: int) -> bytes:
    key = make_key(seed, image)
    return encode_png(perturb_image(decode_rgb(image), kind, severity=severity, key=key))


def _replace_words(question: Question, asked: Asked, *, share: float, seed: int) -> Question:
    if asked.reword is None:
        return question
    words = [replace_words(text, share, key=make_key(seed, asked.name, n)) for n, text in enumerate(asked.words)]
    return replace(question, text=asked.reword(words))
