"""Nouns come from a spaCy pipeline, a folder or a package; a missing one names what fetches it."""

import sys

import pytest
import spacy

from pairwright.schemas.config import NounsConfig
from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.nouns import find_nouns_of, find_phrases_of, name_model, pin_model
from tests.fixtures.tagger import REAL, write_tagger


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    return write_tagger(tmp_path_factory.mktemp("models") / "tagger")


def config_of(folder, **settings):
    return NounsConfig(model=str(folder), **settings)


def nouns(text, folder, **settings):
    (lemmas,) = find_nouns_of([text], config_of(folder, **settings))
    return lemmas


@pytest.mark.parametrize(
    ("text", "lemmas"),
    [
        ("Two DOGS and a dog chase people.", ("dog", "dog", "person")),
        ("", ()),
        ("it runs fast", ()),
        ("Anna has a cat in Rome", ("anna", "cat", "rome")),
        ("a t shirt", ("shirt",)),
    ],
)
def test_nouns_are_lemmas_in_order(tagger, text, lemmas):
    assert nouns(text, tagger) == lemmas


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("two small red balls and a garden bench", ("small red ball", "garden bench")),
        ("a red ball beside a red ball", ("red ball",)),
        ("it is very red", ()),
        ("", ()),
    ],
)
def test_phrases_are_nouns_with_what_describes_them(text, phrases):
    (named,) = find_phrases_of([text], config_of(REAL))
    assert named == phrases


def test_names_can_be_left_out(tagger):
    assert nouns("Anna has a cat in Rome", tagger, proper_nouns=False) == ("cat",)


def test_lemmas_are_words_of_letters(tmp_path):
    odd = write_tagger(tmp_path / "odd", {"2x": "2x", "lamp": " Lamp ", "犬": "犬"})
    assert nouns("2x lamp 犬", odd) == ("lamp", "犬")


def test_unusable_pipelines_are_named_with_the_remedy(tmp_path):
    with pytest.raises(ModelError, match=r"python -m spacy download en_nowhere_sm$"):
        nouns("a dog", "en_nowhere_sm")
    with pytest.raises(ModelError, match=r"meta\.json"):
        pin_model(config_of(tmp_path))
    spacy.blank("en").to_disk(tmp_path / "blank")
    with pytest.raises(ModelError, match=r"POS .*LEMMA"):
        nouns("a dog", tmp_path / "blank")


def test_a_folder_is_known_by_its_files_wherever_it_lies(tagger, tmp_path, monkeypatch):
    pinned = pin_model(config_of(tagger))
    assert pinned.revision.startswith("xxh3:")
    assert name_model(pinned) == name_model(config_of(tagger)) == (pinned.revision,)
    monkeypatch.chdir(tmp_path)
    write_tagger(tmp_path / "same")
    same = pin_model(config_of("same"))
    assert (same.revision, same.model) == (pinned.revision, str(tmp_path / "same"))
    other = write_tagger(tmp_path / "other", {"cow": "cow"})
    assert pin_model(config_of(other)).revision != pinned.revision
    with pytest.raises(ModelError, match=rf"nouns\.revision: .*{pinned.revision}"):
        nouns("a cow", other, revision=pinned.revision)


def test_an_installed_package_is_known_by_its_version_without_being_loaded(monkeypatch):
    monkeypatch.delitem(sys.modules, REAL, raising=False)
    pinned = pin_model(NounsConfig(model=REAL))
    assert (pinned.model, pinned.revision) == (REAL, f"{REAL} 3.8.0")
    assert REAL not in sys.modules


COMPARED = (
    "The first image shows a woman in a red t-shirt who holds an umbrella, while the second image "
    "has three buses."
)
WRITTEN = {
    "In this image there are two dogs near a table.": "image dog table",
    COMPARED: "image woman shirt umbrella image bus",
    "Two knives, 3 forks and 2 glasses are on the wooden shelves.": "knife fork glass shelf",
    "Children play with mice on the leaves.": "child mouse leaf",
    "The man's feet are wet, and people are watching him.": "man foot people",
    "The vase of flowers was removed, and the lamp on the left is taller.": "vase flower lamp left",
    "A parked car can park; the building is being built.": "car building",
    "the Eiffel Tower in Paris at night": "eiffel tower paris night",
    "It is brighter and more crowded there.": "",
}
"""Sentences as people and models write them, and their nouns by hand."""


def test_the_pipeline_of_the_profiles_finds_the_nouns_that_a_reader_finds():
    lemmas = find_nouns_of(WRITTEN, NounsConfig(model=REAL))
    assert [" ".join(each) for each in lemmas] == [*WRITTEN.values()]


def test_the_pipeline_of_the_profiles_knows_names():
    assert nouns("the Eiffel Tower in Paris at night", REAL, proper_nouns=False) == ("night",)
