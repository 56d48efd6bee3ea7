"""Nouns come from a spaCy pipeline, a folder or a package; for a missing one the message says what fetches it."""

import sys

import pytest

from pairwright.schemas.config import NounsConfig
from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.nouns import find_nouns_of, name_model, pin_model
from tests.fixtures.tagger import write_tagger


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    return write_tagger(tmp_path_factory.mktemp("models") / "tagger")


def nouns(text, folder, **settings):
    (found,) = find_nouns_of([text], NounsConfig(model=str(folder), **settings))
    return found


def test_nouns_are_lemmas_in_their_order_names_if_they_may_and_no_other_tokens(tagger, tmp_path):
    assert nouns("Two DOGS and a dog chase people.", tagger) == ("dog", "dog", "person")
    assert nouns("", tagger) == nouns("it runs fast", tagger) == ()
    assert nouns("Anna has a cat in Rome", tagger) == ("anna", "cat", "rome")
    assert nouns("Anna has a cat in Rome", tagger, proper_nouns=False) == ("cat",)
    assert nouns("a t shirt", tagger) == ("shirt",)
    odd = write_tagger(tmp_path / "odd", {"2x": "2x", "lamp": " Lamp ", "犬": "犬"})
    assert nouns("2x lamp 犬", odd) == ("lamp", "犬")


def test_what_is_missing_no_pipeline_or_has_no_tagger_is_named_with_what_to_do(tmp_path):
    import spacy

    with pytest.raises(ModelError, match=r"python -m spacy download en_nowhere_sm\n"):
        next(find_nouns_of(["a dog"], NounsConfig(model="en_nowhere_sm")))
    with pytest.raises(ModelError, match=r"meta\.json"):
        pin_model(NounsConfig(model=str(tmp_path)))
    spacy.blank("en").to_disk(tmp_path / "blank")
    with pytest.raises(ModelError, match=r"POS .*LEMMA .*none"):
        nouns("a dog", tmp_path / "blank")


@pytest.mark.parametrize(
    ("file", "data"),
    [("config.cfg", "[nlp"), ("meta.json", "{"), ("attribute_ruler/patterns", b"\xc1"), ("tokenizer", b"")],
)
def test_a_broken_pipeline_is_refused_with_its_name(tmp_path, file, data):
    folder = write_tagger(tmp_path / "broken")
    (folder / file).write_bytes(data.encode() if isinstance(data, str) else data)
    with pytest.raises(ModelError, match=r"nouns\.model: .*broken"):
        nouns("a dog", folder)


def test_a_folder_is_known_by_its_files_wherever_it_lies(tagger, tmp_path, monkeypatch):
    pinned = pin_model(NounsConfig(model=str(tagger)))
    assert pinned.revision.startswith("xxh3:")
    assert name_model(pinned) == name_model(NounsConfig(model=str(tagger))) == (pinned.revision,)
    monkeypatch.chdir(tmp_path)
    write_tagger(tmp_path / "same")
    same = pin_model(NounsConfig(model="same"))
    assert (same.revision, same.model) == (pinned.revision, str(tmp_path / "same"))
    other = write_tagger(tmp_path / "other", {"cow": "cow"})
    assert pin_model(NounsConfig(model=str(other))).revision != pinned.revision
    with pytest.raises(ModelError, match=rf"nouns\.revision: .*{pinned.revision}"):
        nouns("a cow", other, revision=pinned.revision)


def test_an_installed_package_is_known_by_its_version(tmp_path, monkeypatch):
    package = tmp_path / "xx_tiny_tagger"
    write_tagger(package / "xx_tiny_tagger-1.2.0")
    meta = (package / "xx_tiny_tagger-1.2.0/meta.json").read_text()
    meta = meta.replace('"name":"pipeline"', '"name":"tiny_tagger"').replace('"lang":"en"', '"lang":"xx"')
    (package / "meta.json").write_text(meta.replace('"version":"0.0.0"', '"version":"1.2.0"'))
    (package / "__init__.py").write_text(
        "from spacy.util import load_model_from_init_py\n"
        "def load(**overrides):\n    return load_model_from_init_py(__file__, **overrides)\n"
    )
    about = tmp_path / "xx_tiny_tagger-1.2.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: xx-tiny-tagger\nVersion: 1.2.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    pinned = pin_model(NounsConfig(model="xx_tiny_tagger"))
    assert (pinned.model, pinned.revision) == ("xx_tiny_tagger", "xx_tiny_tagger 1.2.0")
    assert "xx_tiny_tagger" not in sys.modules
    assert nouns("two dogs", "xx_tiny_tagger") == ("dog",)
    sys.modules.pop("xx_tiny_tagger")
