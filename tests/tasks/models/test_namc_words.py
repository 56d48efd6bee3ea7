import open_clip
import pytest

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.namc import NO_WORD
from pairwright.tasks.models.namc_words import ClipWords, bert_words, learnt_words, saved_words

FIRST, SECOND = "A basketballing dog's ball, red", "a cat"


@pytest.fixture(scope="module")
def clip():
    return ClipWords(open_clip.get_tokenizer("ViT-B-32"))


@pytest.fixture
def vocabulary(tmp_path):
    words = (
        "the difference between two images is that first image shows , while second . a ball "
        "dog cat ##s red ' s"
    )
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (tmp_path / "vocab.txt").write_text("\n".join([*special, *words.split()]) + "\n")
    return bert_words(tmp_path / "vocab.txt")


def test_words_have_all_their_pieces(clip):
    found = clip.split(FIRST)
    assert found.spelled == ("a", "basketballing", "dog", "'s", "ball", ",", "red")
    assert found.numbers[:12].tolist() == [NO_WORD, 0, 1, 1, 1, 2, 3, 4, 5, 6, NO_WORD, NO_WORD]
    assert found.tokens[:12].tolist() == open_clip.get_tokenizer("ViT-B-32")(FIRST)[0, :12].tolist()


def test_a_text_that_is_too_long_ends_with_a_whole_word(clip):
    found = clip.split("red " * 73 + "basketballing basketballing")  # of three pieces; 75 fit
    assert found.spelled == ("red",) * 73
    assert found.tokens[73:76].tolist() == [found.tokens[1], 49407, 0]
    assert clip.split("").spelled == ()


def test_the_decoders_tokens_know_their_words(clip, vocabulary):
    halves = (
        clip.split("a dog's ball"),
        clip.split("a cat"),
    )  # a, dog, 's, ball: the third is ' and s for BERT
    found = vocabulary.write(halves, ("shows", "shows"), length=80)
    text = "the difference between the two images is that the first image shows a dog's ball, "
    assert vocabulary.read(found.tokens.tolist()) == text + "while the second image shows a cat."
    words = [int(number) for number in found.numbers]
    assert words[:13] == [NO_WORD] * 13  # [CLS] and the first twelve words
    assert words[13:18] == [0, 1, 2, 2, 3]
    assert words[18:] == [NO_WORD] * 6 + [77, 78, NO_WORD, NO_WORD]
    assert (found.tokens[0], found.tokens[-1]) == (vocabulary.start, vocabulary.end)


def test_a_description_that_is_too_long_is_cut(clip, vocabulary):
    found = vocabulary.write(
        (clip.split("a dog"), clip.split("a cat")), ("shows", "shows"), length=15
    )
    assert len(found.tokens) == len(found.numbers) == 15
    assert found.tokens[-1] == vocabulary.end


def test_a_vocabulary_is_learnt_saved_and_read(tmp_path):
    made = learnt_words(["a red ball", "a blue cube"] * 20, size=60)
    (tmp_path / "words.json").write_text(made.as_json())
    again = saved_words(tmp_path / "words.json")
    written = again.write_text("A blue ball", length=23)
    assert again.read(written.tokens.tolist()) == "a blue ball"
    assert again.size == made.size <= 60


def test_words_are_joined_by_hyphens_and_apostrophes():
    """And a text that is read is written by the same tokens again."""
    text = (
        "a man's medium-sized sign reading ' stop '; it isn't there, and they're in a two-tone car."
    )
    words = learnt_words([text] * 20, size=200)
    tokens = words.write_text(text, length=80).tokens.tolist()
    assert words.read(tokens) == text
    assert words.write_text(words.read(tokens), length=80).tokens.tolist() == tokens


def test_what_is_no_vocabulary_is_refused(tmp_path):
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    with pytest.raises(ModelError, match=r"vocab\.txt"):
        bert_words(tmp_path / "vocab.txt")
    (tmp_path / "words.json").write_text("{")
    with pytest.raises(ModelError, match=r"words\.json"):
        saved_words(tmp_path / "words.json")
    with pytest.raises(ModelError, match="words"):
        ClipWords(object())
