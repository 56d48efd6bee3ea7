"""The rules in Python, and their equality with PTBTokenizer itself where there is Java."""

import itertools
import random
import shutil

import pytest

from pairwright.tasks.evaluation.ptb_rules import NBSP, split_ptb_words

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
    assert split_ptb_words(text) == tokens


def tokenise_with_java(texts):
    """Return what pycocoevalcap's tokeniser makes of each text, an empty one after it: it may look
    at the next line."""
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    lines = [line for text in texts for line in (text, "")]
    numbered = {number: [{"caption": line}] for number, line in enumerate(lines)}
    tokens = PTBTokenizer().tokenize(numbered)
    return [tokens[2 * number][0] for number in range(len(texts))]


WORDS = [
    # nouns
    "man woman people person car truck SUV van T-shirt U.S. bicycle café kid's men's people's "
    "left-hand-side top-left traffic-light 2nd 3rd parking-lot McDonald's O'Neill's corner, lot; "
    "sign: image's bus's cars' 10am Mr. St. Dr.",
    # verbs
    "is isn't are aren't was wasn't has hasn't can't don't won't it's there's they're he'd we'll "
    "I'm cannot",
    # manners
    "red dark-blue light-colored 3 2.5 1,000 10:30 5% $5 £3 two-door 'big' \"big\" (left) [red] "
    "“small” ‘tiny’ front/back and/or 1/2 ½ 3-year-old mid-1990s 20-30 6ft 90° #2 & + = * e.g. "
    "i.e. etc. vs. no. approx. naïve — – --",
]
ENDS = [".", "!", "?", "...", "…", "", ";", " -", "?!", '"', "'"]


def captions(count):
    """Return captions made of hard words."""
    rng = random.Random(11)
    kinds = [words.split() for words in (*WORDS, WORDS[0])]
    texts = []
    for _ in range(count):
        words = [rng.choice(rng.choice(kinds)) for _ in range(rng.randint(3, 14))]
        words = [word.capitalize() if rng.random() < 0.15 else word for word in words]
        start = rng.choice(["", "In the after image, ", "The "])
        texts.append(start + " ".join(words) + rng.choice(ENDS))
    return texts


@needs_java
def test_java_writes_the_same_of_the_rules_and_of_captions_of_hard_words():
    texts = [*(text for text, _ in WRITTEN), *captions(1000)]
    tokens = [*(tokens for _, tokens in WRITTEN), *map(split_ptb_words, texts[len(WRITTEN) :])]
    theirs = tokenise_with_java(texts)
    rows = zip(texts, tokens, theirs, strict=True)
    assert [row for row in rows if row[1] != row[2]] == []


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\x0b", "\x0c", "\u2028", "\u2029"])
def test_line_breaks_are_spaces(line_break):
    assert split_ptb_words(f"a{line_break}b") == "a b"


def test_spaces_of_the_text_alone_are_kept_in_a_token():
    for letters in itertools.product("a1'-.,<(&@/ ", repeat=4):
        assert NBSP not in split_ptb_words("".join(letters)) or " " in letters


@pytest.mark.parametrize("unit", ["a-.", "a@a.", "a;", "<a b=", "(1", "a.a-", "'a", "http://a/"])
def test_hostile_texts_take_time_in_proportion(unit):
    """Minutes, where a rule looks at the whole rest from each place."""
    assert split_ptb_words(unit * (20_000 // len(unit)))
