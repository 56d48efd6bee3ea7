"""Split descriptions into words that NAMC can mask, and encode them in its decoder's vocabulary.

CLIP's pieces mark the ends of words, so words are masked whole. The decoder has another vocabulary
(BERT's), whose pieces keep their word's number: a word masked for CLIP is ``[MASK]`` in the
decoder's input. Needs open_clip and tokenizers.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.namc import NO_WORD

LAST = "</w>"  # ends the last piece of a word
START, BETWEEN, END = (
    "the difference between the two images is that the first image",
    ", while the second image",
    ".",
)
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TokenisedText:
    """Tokenised text: tokens, the number of each one's word or ``NO_WORD``, and the words themselves."""

    tokens: Ids
    numbers: Ids
    spelled: tuple[str, ...] = ()


class ClipWords:
    """CLIP's own tokenizer (open_clip's), with the words of its pieces."""

    def __init__(self, tokenizer: Any) -> None:
        pieces = getattr(tokenizer, "decoder", None)
        if not isinstance(pieces, dict):
            kind = type(tokenizer).__name__
            raise ModelError(
                f"namc.clip: NAMC needs CLIP's own tokenizer; {kind} does not mark the ends of words"
            )
        self._tokenizer = tokenizer
        self._ends = {number for number, piece in pieces.items() if str(piece).endswith(LAST)}
        self._length = int(tokenizer.context_length)

    def split(self, text: str) -> TokenisedText:
        """Return a text's ``(L,)`` tokens and words; a long text is cut after a whole word."""
        words: list[list[int]] = [[]]
        for token in self._tokenizer.encode(text):
            words[-1].append(token)
            if token in self._ends:
                words.append([])
        words.pop()
        while sum(map(len, words)) > self._length - 2:
            words.pop()
        tokens = np.zeros(self._length, dtype=np.int64)
        numbers = np.full(self._length, NO_WORD, dtype=np.int64)
        flat = [token for word in words for token in word]
        tokens[: len(flat) + 2] = [
            self._tokenizer.sot_token_id,
            *flat,
            self._tokenizer.eot_token_id,
        ]
        numbers[1 : len(flat) + 1] = [number for number, word in enumerate(words) for _ in word]
        return TokenisedText(
            tokens, numbers, tuple(self._tokenizer.decode(word).strip() for word in words)
        )


class DecoderWords:
    """Decoder's vocabulary: WordPiece with BERT's special tokens, as in ``tokenizers``."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        found = {name: tokenizer.token_to_id(name) for name in SPECIAL}
        if missing := [name for name, number in found.items() if number is None]:
            raise ModelError(
                f"NAMC's vocabulary lacks {', '.join(missing)}: use one of BERT's form"
            )
        self.pad, self.unknown, self.start, self.end, self.mask = found.values()

    @property
    def size(self) -> int:
        """Return the number of tokens."""
        return self._tokenizer.get_vocab_size()

    def as_json(self) -> str:
        """Return it for ``saved_words``."""
        return self._tokenizer.to_str()

    def write(
        self, halves: Sequence[TokenisedText], verbs: Sequence[str], *, length: int
    ) -> TokenisedText:
        """Return an implicit-change description (paper 001, 3.2.1) of two halves and their verbs.

        It is cut to ``length`` tokens, start and end included. Word numbers of the second half
        start at the length of CLIP's texts.
        """
        spelled: list[tuple[str, int]] = []
        for number, (fixed, half, verb) in enumerate(
            zip((START, BETWEEN), halves, verbs, strict=True)
        ):
            spelled += [(word, NO_WORD) for word in f"{fixed} {verb}".split()]
            spelled += [
                (word, number * len(half.numbers) + place)
                for place, word in enumerate(half.spelled)
            ]
        return self._encode([*spelled, (END, NO_WORD)], length)

    def write_text(self, text: str, *, length: int) -> TokenisedText:
        """Return any text, without maskable words."""
        return self._encode([(word, NO_WORD) for word in text.split()], length)

    def read(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without start, end and padding, with no space before punctuation.

        BERT's tokens lose the spacing of hyphens and apostrophes: both join words, since "a man ' s
        medium - sized hat" would share no such word with the references.
        """
        said = [token for token in tokens if token not in (self.start, self.end, self.pad)]
        text = re.sub(r"\s+([.,;:!?])", r"\1", self._tokenizer.decode(said))
        text = re.sub(r"(?<=\w) - (?=\w)", "-", text)
        return re.sub(r"(?<=\w) ' (s|t|re|ve|m|d|ll)\b", r"'\1", text)

    def _encode(self, spelled: list[tuple[str, int]], length: int) -> TokenisedText:
        found = self._tokenizer.encode(
            [word for word, _ in spelled], is_pretokenized=True, add_special_tokens=False
        )
        tokens = [self.start, *found.ids[: length - 2], self.end]
        numbers = [NO_WORD, *(spelled[place][1] for place in found.word_ids[: length - 2]), NO_WORD]
        return TokenisedText(np.array(tokens), np.array(numbers))


def bert_words(vocabulary: Path) -> DecoderWords:
    """Return the vocabulary of a BERT's ``vocab.txt``, uncased."""
    from tokenizers import BertWordPieceTokenizer

    try:
        return DecoderWords(BertWordPieceTokenizer.from_file(str(vocabulary), lowercase=True))
    except Exception as error:  # tokenizers raises its own, which has no name
        raise ModelError(f"{vocabulary} cannot be read as BERT's vocab.txt: {error}") from error


def learnt_words(texts: Iterable[str], *, size: int) -> DecoderWords:
    """Return a vocabulary of at most ``size`` tokens, learnt from texts."""
    from tokenizers import BertWordPieceTokenizer

    made = BertWordPieceTokenizer(lowercase=True)
    made.train_from_iterator(
        iter(texts),
        vocab_size=size,
        min_frequency=0,
        special_tokens=list(SPECIAL),
        show_progress=False,
    )
    return DecoderWords(made)


def saved_words(path: Path) -> DecoderWords:
    """Return the vocabulary of a file of ``DecoderWords.as_json``."""
    from tokenizers import Tokenizer

    try:
        return DecoderWords(Tokenizer.from_str(path.read_text(encoding="utf-8")))
    except Exception as error:  # tokenizers raises its own, which has no name
        raise ModelError(f"{path} cannot be read as a vocabulary: {error}") from error
