"""The rules in Python, and their equality with PTBTokenizer itself where there is Java."""

import itertools
import random
import shutil

import pytest

from pairwright.tasks.evaluation.ptb_rules import NBSP, tokenise

needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="no Java")

WRITTEN = [
    ("The man's in the left-hand corner.", "the man 's in the left-hand corner"),
    ("It isn't there; they're gone, aren't they?", "it is n't there they 're gone are n't they"),
    ("“Two” cars don’t ‘move’ -- they can't!", "two cars do n't move they ca n't"),
    ("I cannot see, and I'm gonna leave...", "i can not see and i 'm gon na leave"),
    ('a "STOP" sign (on the left) [sic]', "a stop sign -lrb- on the left -rrb- -lsb- sic -rsb-"),
    ("3.5 cars, 1,000 people at 10:30 or 10:30am", "3.5 cars 1,000 people at 10:30 or 10:30 am"),
    ("1/2 of it, 2 1/2 cups and ½ a cup", f"1/2 of it 2{NBSP}1/2 cups and 1/2 a cup"),
    ("$5, £6, €7 and 5¢", "$ 5 # 6 $ 7 and 5 cents"),
    ("No. 5 vs. the U.S. flag, e.g. no. It is red.", "no. 5 vs. the u.s. flag e.g. no it is red"),
    ("a 3-year-old's t-shirt of the mid-1990s", "a 3-year-old 's t-shirt of the mid-1990s"),
    ("what?! really!! no", "what ?! really !! no"),
    ("café naïve Ελλ’s 東京タワー", "café naïve ελλ 's 東京タワー"),
    ("a car 😀 and ★ 90° × 2²", "a car and ★ 90 ° × 2 ²"),
    ("", ""),
    (" . , ; ", ""),
    ("'tis rock'n'roll o'clock, y'all: 'em", "'t is rock 'n' roll o'clock y' all 'em"),
    ("black/white and/or AT&T & co", "black/white and/or at&t & co"),
    ("*bold* #2 @home <br> a_b", "* bold * # 2 @home <br> a_b"),
]


@pytest.mark.parametrize(("text", "tokens"), WRITTEN)
def test_the_rules(text, tokens):
    assert tokenise(text) == tokens


def tokenise_with_java(texts):
    """Return what pycocoevalcap's tokeniser makes of each text, an empty one after it: it may look
    at the next line."""
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    given = [line for text in texts for line in (text, "")]
    found = PTBTokenizer().tokenize(
        {number: [{"caption": text}] for number, text in enumerate(given)}
    )
    return [found[2 * number][0] for number in range(len(texts))]


@needs_java
def test_java_writes_the_same():
    texts = [text for text, _ in WRITTEN]
    assert tokenise_with_java(texts) == [tokens for _, tokens in WRITTEN]


NOUNS = (
    "man woman people person car truck SUV van T-shirt U.S. bicycle café kid's men's people's "
    "left-hand-side top-left "
    "traffic-light 2nd 3rd parking-lot McDonald's O'Neill's corner, lot; sign: image's bus's "
    "cars' 10am Mr. St. Dr."
)
VERBS = (
    "is isn't are aren't was wasn't has hasn't can't don't won't it's there's they're he'd "
    "we'll I'm cannot"
)
MANNERS = (
    "red dark-blue light-colored 3 2.5 1,000 10:30 5% $5 £3 two-door 'big' \"big\" (left) [red] "
    "“small” ‘tiny’ "
    "front/back and/or 1/2 ½ 3-year-old mid-1990s 20-30 6ft 90° #2 & + = * e.g. i.e. etc. vs. no. "
    "approx. naïve — – --"
)
ENDS = [".", "!", "?", "...", "…", "", ";", " -", "?!", '"', "'"]


def captions(count):
    rng = random.Random(11)
    kinds = [words.split() for words in (NOUNS, VERBS, MANNERS, NOUNS)]

    def one():
        words = [rng.choice(rng.choice(kinds)) for _ in range(rng.randint(3, 14))]
        words = [word.capitalize() if rng.random() < 0.15 else word for word in words]
        return rng.choice(["", "In the after image, ", "The "]) + " ".join(words) + rng.choice(ENDS)

    return [one() for _ in range(count)]


@needs_java
def test_they_equal_java_on_captions_made_of_hard_words():
    texts = captions(1000)
    theirs = tokenise_with_java(texts)
    different = [
        (text, own, tokens)
        for text, own, tokens in zip(texts, map(tokenise, texts), theirs, strict=True)
        if own != tokens
    ]
    assert different == []


def test_line_breaks_are_spaces():
    for one in ("\n", "\r\n", "\x0b", "\x0c", "\u2028", "\u2029"):
        assert tokenise(f"a{one}b") == "a b"
    for letters in itertools.product("a1'-.,<(&@/ ", repeat=4):
        assert NBSP not in tokenise("".join(letters)) or " " in "".join(letters)


@pytest.mark.parametrize("unit", ["a-.", "a@a.", "a;", "<a b=", "(1", "a.a-", "'a", "http://a/"])
def test_hostile_texts_take_time_in_proportion(unit):
    assert tokenise(
        unit * (20_000 // len(unit))
    )  # minutes, where a rule looks at the whole rest from each place
