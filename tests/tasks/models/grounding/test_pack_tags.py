"""Tags in prompts: where each stands is known, whatever its letters are."""

from dataclasses import replace

import pytest

from pairwright.tasks.models.grounding.pack_tags import LONGEST, Prompt, Span, TagPacker
from tests.fixtures.grounding_checkpoints import FIRST_WORD, FRAME, WORDS, make_tokenizer

CLS, SEP, STOP, UNKNOWN = FRAME["[CLS]"], FRAME["[SEP]"], FRAME["."], FRAME["[UNK]"]
TOKENIZER = make_tokenizer()


def word(text):
    return FIRST_WORD + WORDS.index(text)


def packer(limit=32):
    return TagPacker(
        tokenize=lambda texts: TOKENIZER(texts, add_special_tokens=False)["input_ids"],
        first=CLS,
        last=SEP,
        stop=STOP,
        unknown=UNKNOWN,
        forbidden=frozenset(FRAME.values()) - {UNKNOWN},
        limit=limit,
    )


def pack(*names, limit=32):
    (prompts,) = packer(limit)([names])
    return prompts


def test_each_tag_has_its_place():
    assert pack("cat", "red ball", "football") == [
        Prompt(
            (CLS, word("cat"), STOP, word("red"), word("ball"), STOP, word("foot"), word("##ball"), STOP, SEP),
            (Span(0, 1, 2), Span(1, 3, 5), Span(2, 6, 8)),
        )
    ]


def test_prompts_are_what_the_tokenizer_makes_of_the_whole_text():
    names = ["Cat", "traffic light", "two footballs", "sheep-dog", "É", "中中"]
    (prompt,) = pack(*names)
    assert list(prompt.ids) == TOKENIZER(" . ".join(names) + " .")["input_ids"]


def test_as_many_tags_as_fit_share_a_prompt():
    # Frame 2; "red ball" and its stop 3: ten fill 32 tokens, the eleventh opens the next prompt.
    first, second = pack(*["red ball"] * 12)
    assert (len(first.ids), len(second.ids)) == (32, 8)
    assert [span.tag for span in first.spans] == list(range(10))
    assert second.spans == (Span(10, 1, 3), Span(11, 4, 6))
    assert [len(prompt.ids) for prompt in pack(*["red ball"] * 12, limit=31)] == [29, 11]


def test_a_tag_that_no_prompt_can_hold_is_left_out():
    # 29 words, their stop and the frame are 32 tokens.
    assert [len(prompt.ids) for prompt in pack(" ".join(["cat"] * 29))] == [32]
    assert pack(" ".join(["cat"] * 30)) == []
    (prompt,) = pack("dog", " ".join(["cat"] * 30), "ball")
    assert prompt == Prompt((CLS, word("dog"), STOP, word("ball"), STOP, SEP), (Span(0, 1, 2), Span(2, 3, 4)))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("st. bernard", ["st", "bernard"]),
        ("cat?", ["cat"]),
        ("cat . dog . ", ["cat", "dog"]),
        ("cat\n\t\x00dog\r", ["cat", "dog"]),
        ("cat [SEP] dog", ["cat", "[", "sep", "]", "dog"]),
        ("[MASK]", ["[", "mask", "]"]),
        ("CAT\ud800", ["cat"]),
        ("中", ["中"]),
        ("\u200bred\u202e ball", ["red", "ball"]),
    ],
)
def test_no_text_of_a_tag_ends_it(name, wanted):
    (prompt,) = pack("a", name, "of")
    ids = [word(text) for text in wanted]
    assert prompt.ids == (CLS, word("a"), STOP, *ids, STOP, word("of"), STOP, SEP)
    assert [span.tag for span in prompt.spans] == [0, 1, 2]
    assert prompt.ids[prompt.spans[1].start : prompt.spans[1].stop] == tuple(ids)


@pytest.mark.parametrize(
    "name",
    ["", " ", ".", "?.?", "\n\x00", "[MASK]" * 10, "\ud800", "zzzz", "zzzz qqqq", "z" * 10_000, "cat " * 10_000, "🦄"],
)
def test_what_is_no_words_is_left_out(name):
    assert pack(name) == []
    assert pack(name, "cat", name) == [Prompt((CLS, word("cat"), STOP, SEP), (Span(1, 1, 2),))]


def test_a_prompts_frame_is_taken_out_of_what_a_tokenizer_reads():
    read = [[CLS, word("cat"), SEP], [STOP, FRAME["?"], FRAME["[PAD]"]], [word("dog"), FRAME["[MASK]"], word("ball")]]
    made = replace(packer(), tokenize=lambda _: read)
    (prompt,) = made([["1", "2", "3"]])[0]
    assert prompt.ids == (CLS, word("cat"), STOP, word("dog"), word("ball"), STOP, SEP)
    assert prompt.spans == (Span(0, 1, 2), Span(2, 3, 5))


def test_a_word_that_is_not_known_stays_beside_one_that_is():
    (prompt,) = pack("zzzz cat")
    assert prompt.ids == (CLS, UNKNOWN, word("cat"), STOP, SEP)


def test_long_texts_are_not_read():
    asked = []

    def tokenize(texts):
        asked.extend(texts)
        return [[word("cat")] for _ in texts]

    made = TagPacker(tokenize=tokenize, first=1, last=2, stop=3, unknown=4, forbidden=frozenset(), limit=9)
    assert made([["c" * LONGEST, "c" * (LONGEST + 1)], []]) == [[Prompt((1, word("cat"), 3, 2), (Span(0, 1, 2),))], []]
    assert asked == ["c" * LONGEST]
