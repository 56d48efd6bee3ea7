import open_clip
import pytest

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.namc import NO_WORD
from pairwright.tasks.models.namc_words import ClipWords, bert_words, learnt_words, saved_words

FIRST = "A basketballing dog's ball, red"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = (
    "the difference between two images is that first image shows , while second . a ball dog cat "
    "##s red ' s"
)


@pytest.fixture(scope="module")
def clip():
    return ClipWords(open_clip.get_tokenizer("ViT-B-32"))


@pytest.fixture
def vocabulary(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS.split()]) + "\n")
    return bert_words(tmp_path / "vocab.txt")


def test_words_have_all_their_pieces(clip):
    text = clip.split_words(FIRST)
    assert text.spelled == ("a", "basketballing", "dog", "'s", "ball", ",", "red")
    assert text.numbers[:12].tolist() == [NO_WORD, 0, 1, 1, 1, 2, 3, 4, 5, 6, NO_WORD, NO_WORD]
    tokens = open_clip.get_tokenizer("ViT-B-32")(FIRST)[0, :12]
    assert text.tokens[:12].tolist() == tokens.tolist()


def test_a_text_that_is_too_long_ends_with_a_whole_word(clip):
    """Of three pieces; 75 fit."""
    text = clip.split_words("red " * 73 + "basketballing basketballing")
    assert text.spelled == ("red",) * 73
    assert text.tokens[73:76].tolist() == [text.tokens[1], 49407, 0]
    assert clip.split_words("").spelled == ()


def test_the_decoders_tokens_know_their_words(clip, vocabulary):
    """The first twelve words follow [CLS]; the third of a, dog, 's, ball is ' and s for BERT."""
    halves = clip.split_words("a dog's ball"), clip.split_words("a cat")
    written = vocabulary.compose(halves, ("shows", "shows"), length=80)
    assert vocabulary.decode(written.tokens.tolist()) == (
        "the difference between the two images is that the first image shows a dog's ball, "
        "while the second image shows a cat."
    )
    numbers = [0, 1, 2, 2, 3, *[NO_WORD] * 6, 77, 78, NO_WORD, NO_WORD]
    assert written.numbers.tolist() == [NO_WORD] * 13 + numbers
    assert (written.tokens[0], written.tokens[-1]) == (vocabulary.start, vocabulary.end)


def test_a_description_that_is_too_long_is_cut(clip, vocabulary):
    halves = clip.split_words("a dog"), clip.split_words("a cat")
    written = vocabulary.compose(halves, ("shows", "shows"), length=15)
    assert len(written.tokens) == len(written.numbers) == 15
    assert written.tokens[-1] == vocabulary.end


def test_a_vocabulary_is_learnt_saved_and_read(tmp_path):
    learnt = learnt_words(["a red ball", "a blue cube"] * 20, size=60)
    (tmp_path / "words.json").write_text(learnt.as_json())
    saved = saved_words(tmp_path / "words.json")
    written = saved.write_text("A blue ball", length=23)
    assert saved.decode(written.tokens.tolist()) == "a blue ball"
    assert saved.size == learnt.size <= 60


def test_a_text_that_is_read_is_written_by_the_same_tokens():
    text = (
        "a man's medium-sized sign reading ' stop '; it isn't there, and they're in a two-tone car."
    )
    words = learnt_words([text] * 20, size=200)
    tokens = words.write_text(text, length=80).tokens.tolist()
    assert words.decode(tokens) == text
    assert words.write_text(words.decode(tokens), length=80).tokens.tolist() == tokens


@pytest.mark.parametrize(
    ("read", "name", "content"), [(bert_words, "vocab.txt", "a\nb\n"), (saved_words, "w.json", "{")]
)
def test_what_is_no_vocabulary_is_refused(tmp_path, read, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(ModelError, match=name):
        read(tmp_path / name)


def test_what_is_no_tokenizer_is_refused():
    with pytest.raises(ModelError, match="words"):
        ClipWords(object())
