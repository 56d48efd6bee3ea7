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

from pairwright.schemas.errors import ModelError, wrap_errors
from pairwright.tasks.models.namc import NO_WORD

LAST = "</w>"
"""End of the last piece of a word."""
START = "the difference between the two images is that the first image"
BETWEEN = ", while the second image"
END = "."
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TokenisedText:
    """Text as tokens."""

    tokens: Ids
    numbers: Ids
    """Number of each token's word, or ``NO_WORD``."""
    spelled: tuple[str, ...] = ()
    """The words."""


class ClipWords:
    """CLIP's own tokenizer (open_clip's), with the words of its pieces."""

    def __init__(self, tokenizer: Any) -> None:
        pieces = getattr(tokenizer, "decoder", None)
        if not isinstance(pieces, dict):
            kind = type(tokenizer).__name__
            raise ModelError(
                "namc.clip: NAMC needs CLIP's own tokenizer; "
                f"{kind} does not mark the ends of words"
            )
        self._tokenizer = tokenizer
        self._ends = {number for number, piece in pieces.items() if str(piece).endswith(LAST)}
        self._length = int(tokenizer.context_length)

    def split_words(self, text: str) -> TokenisedText:
        """Return a text's ``(L,)`` tokens and words; a long text is cut after a whole word."""
        pieces, numbers, spelled = self._fit(self._split_words(text))
        end = len(pieces) + 1
        tokens = np.zeros(self._length, dtype=np.int64)
        tokens[0] = self._tokenizer.sot_token_id
        tokens[1:end] = pieces
        tokens[end] = self._tokenizer.eot_token_id
        word_numbers = np.full(self._length, NO_WORD, dtype=np.int64)
        word_numbers[1:end] = numbers
        return TokenisedText(tokens, word_numbers, tuple(spelled))

    def _split_words(self, text: str) -> list[list[int]]:
        """Return the pieces of each whole word."""
        words: list[list[int]] = []
        word: list[int] = []
        for piece in self._tokenizer.encode(text):
            word.append(piece)
            if piece in self._ends:
                words.append(word)
                word = []
        return words

    def _fit(self, words: Sequence[list[int]]) -> tuple[list[int], list[int], list[str]]:
        """Return the pieces that fit between start and end, their words' numbers, and the words."""
        pieces: list[int] = []
        numbers: list[int] = []
        spelled: list[str] = []
        for number, word in enumerate(words):
            if len(pieces) + len(word) > self._length - 2:
                break
            pieces += word
            numbers += [number] * len(word)
            spelled.append(self._tokenizer.decode(word).strip())
        return pieces, numbers, spelled


class DecoderWords:
    """Decoder's vocabulary: WordPiece with BERT's special tokens, as in ``tokenizers``."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        numbers = {name: tokenizer.token_to_id(name) for name in SPECIAL}
        missing = [name for name, number in numbers.items() if number is None]
        if missing:
            raise ModelError(
                f"NAMC's vocabulary lacks {', '.join(missing)}: use one of BERT's form"
            )
        self.pad, self.unknown, self.start, self.end, self.mask = numbers.values()

    @property
    def size(self) -> int:
        """Return the number of tokens."""
        return self._tokenizer.get_vocab_size()

    def as_json(self) -> str:
        """Return it for ``saved_words``."""
        return self._tokenizer.to_str()

    def compose(
        self,
        halves: Sequence[TokenisedText],
        verbs: Sequence[str],
        *,
        length: int,
    ) -> TokenisedText:
        """Return an implicit-change description (paper 001, 3.2.1) of two halves and their verbs.

        It is cut to ``length`` tokens, start and end included. Word numbers of the second half
        start at the length of CLIP's texts.
        """
        spelled: list[tuple[str, int]] = []
        offset = 0
        for opening, half, verb in zip((START, BETWEEN), halves, verbs, strict=True):
            spelled += [(word, NO_WORD) for word in f"{opening} {verb}".split()]
            spelled += [(word, offset + number) for number, word in enumerate(half.spelled)]
            offset = len(half.numbers)
        spelled.append((END, NO_WORD))
        return self._encode(spelled, length)

    def write_text(self, text: str, *, length: int) -> TokenisedText:
        """Return any text, without maskable words."""
        return self._encode([(word, NO_WORD) for word in text.split()], length)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without start, end, padding and space before punctuation.

        BERT's tokens lose the spacing of hyphens and apostrophes: both join words, since "a man ' s
        medium - sized hat" would share no such word with the references.
        """
        special = (self.start, self.end, self.pad)
        pieces = [token for token in tokens if token not in special]
        text = re.sub(r"\s+([.,;:!?])", r"\1", self._tokenizer.decode(pieces))
        text = re.sub(r"(?<=\w) - (?=\w)", "-", text)
        return re.sub(r"(?<=\w) ' (s|t|re|ve|m|d|ll)\b", r"'\1", text)

    def _encode(self, spelled: list[tuple[str, int]], length: int) -> TokenisedText:
        encoding = self._tokenizer.encode(
            [word for word, _ in spelled],
            is_pretokenized=True,
            add_special_tokens=False,
        )
        tokens = [self.start, *encoding.ids[: length - 2], self.end]
        numbers = [spelled[position][1] for position in encoding.word_ids[: length - 2]]
        return TokenisedText(np.array(tokens), np.array([NO_WORD, *numbers, NO_WORD]))


def bert_words(vocabulary: Path) -> DecoderWords:
    """Return the vocabulary of a BERT's ``vocab.txt``, uncased."""
    from tokenizers import BertWordPieceTokenizer

    def refuse(error: Exception) -> ModelError:
        return ModelError(f"{vocabulary} cannot be read as BERT's vocab.txt: {error}")

    with wrap_errors(refuse):
        return DecoderWords(BertWordPieceTokenizer.from_file(str(vocabulary), lowercase=True))


def learnt_words(texts: Iterable[str], *, size: int) -> DecoderWords:
    """Return a vocabulary of at most ``size`` tokens, learnt from texts."""
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer(lowercase=True)
    tokenizer.train_from_iterator(
        iter(texts),
        vocab_size=size,
        min_frequency=0,
        special_tokens=list(SPECIAL),
        show_progress=False,
    )
    return DecoderWords(tokenizer)


def saved_words(path: Path) -> DecoderWords:
    """Return the vocabulary of a file of ``DecoderWords.as_json``."""
    from tokenizers import Tokenizer

    def refuse(error: Exception) -> ModelError:
        return ModelError(f"{path} cannot be read as a vocabulary: {error}")

    with wrap_errors(refuse):
        return DecoderWords(Tokenizer.from_str(path.read_text(encoding="utf-8")))
