"""Tags of images: from scene graphs, from a tiny RAM, from the nouns of texts."""

import pytest

from pairwright.schemas.config import TaggingConfig
from pairwright.schemas.rows import Dropped, MentionRow, RefusedTag, TagsRow, TargetRow, make_key
from pairwright.tasks.images.decode import decode_rgb
from pairwright.tasks.models.prepare_ahead import DecodedImage
from pairwright.tasks.models.ram import RamTagger
from pairwright.tasks.models.scene_models import SceneTagger
from pairwright.tasks.rejected.tag_images import (
    MAX_NAMES,
    STAGE,
    choose_tags,
    tag_images,
)
from pairwright.tasks.texts.things import identify_words
from tests.fixtures.graphs import graph, image_row, thing
from tests.fixtures.pictures import picture
from tests.fixtures.ram_checkpoints import TAGS, write_ram
from tests.fixtures.removals import tag
from tests.fixtures.rows import row_of

NO_THINGS = {"red", "photo", "grass", "running"}
"""Of the tiny model's tags."""
NOUNS = TaggingConfig(taggers=("nouns",))
TWO_BALLS = (thing("a"), thing("b"))
BLUE_SIGN = thing("c", "sign", "blue")


def image(number, scene=None, data=None):
    data = data or picture(number, size=(30, 20))
    return image_row(make_key("image", number), scene, image=data, name=f"{number}.png")


def mentions(row, *nouns):
    about = {"source": make_key("text", *nouns), "subject": row.key}
    return row_of(MentionRow, *nouns, nouns=nouns, **about)


@pytest.fixture(scope="module")
def ram(tmp_path_factory):
    thresholds = tuple(0.3 + 0.02 * place for place in range(len(TAGS)))
    model = write_ram(tmp_path_factory.mktemp("ram"), thresholds=thresholds)
    return TaggingConfig(taggers=("ram",), ram=model.config)


def tags_of(row):
    assert isinstance(row, TagsRow)
    return [(one.name, one.score, one.tagger) for one in row.tags]


def names(tags):
    return [one.name for one in tags]


def test_scenes_keep_every_tag_of_their_graphs() -> None:
    """Neither equal names, nor the list of words, nor ``max_tags`` count."""
    scene = graph(*TWO_BALLS, thing("d", "ball", "blue"), BLUE_SIGN)
    source = image(0, scene)
    (row,) = tag_images([source], TaggingConfig(max_tags=1, excluded=("blue metal sign",)))
    assert isinstance(row, TagsRow)
    assert (row.tags,) == tuple(SceneTagger().tag([scene]))
    assert names(row.tags)[:2] == ["red metal ball"] * 2
    assert row.refused_tags == ()
    words = [f"scene-graph {one.name} 1.0 {' '.join(one.objects)}" for one in row.tags]
    assert row.key == make_key("tags", source.key, *words)
    assert (row.source_key, row.subject) == (source.key, source.key)


@pytest.mark.parametrize("scene", [None, graph()], ids=["no graph", "an empty scene"])
def test_an_image_without_things_has_no_tags(scene) -> None:
    (dropped,) = tag_images([image(0, scene)], TaggingConfig())
    assert dropped == Dropped(source_key=image(0).key, reason="no tags", detail="0.png")


def test_ram_names_things_by_falling_score_and_refuses_the_rest(ram) -> None:
    sources = [image(seed) for seed in range(6)]
    tagger = RamTagger(config=ram.ram)
    prepared = [tagger.prepare(DecodedImage(decode_rgb(row.image))) for row in sources]
    rows = tag_images(sources, ram)
    for source, expected, row in zip(sources, tagger.tag(prepared), rows, strict=True):
        assert isinstance(row, TagsRow)
        assert row.source_key == source.key
        found = [one.name.lower() for one in expected]
        assert found
        assert names(row.tags) == [name for name in found if name not in NO_THINGS]
        assert set(names(row.refused_tags)) == NO_THINGS & set(found)
        assert {one.reason for one in row.refused_tags} <= {"names no thing"}
        scores = [one.score for one in row.tags]
        assert scores == sorted(scores, reverse=True)
        assert {one.tagger for one in row.tags} == {"ram"}


def test_names_of_texts_come_first_and_once(ram) -> None:
    source = image(3)
    both = ram.model_copy(update={"taggers": ("ram", "nouns")})
    texts = (mentions(source, "zebra", "Dog", "sky"), mentions(source, "table", "zebra"))
    (alone,) = tag_images([source], ram)
    (row,) = tag_images([source], both, mentions={source.key: texts})
    assert "dog" in names(alone.tags)
    of_texts = [(name, 1.0, "nouns") for name in ("zebra", "dog", "table")]
    assert tags_of(row) == [*of_texts, *(one for one in tags_of(alone) if one[0] != "dog")]
    assert RefusedTag(name="sky", reason="names no thing") in row.refused_tags


def test_texts_alone_look_at_no_image() -> None:
    source = image(1, data=b"no image")
    (row,) = tag_images([source], NOUNS, mentions={source.key: (mentions(source, "dog"),)})
    assert tags_of(row) == [("dog", 1.0, "nouns")]
    no_things = {source.key: (mentions(source, "sky", "sea"),)}
    (dropped,) = tag_images([source], NOUNS, mentions=no_things)
    detail = "1.png: sky, sea"
    assert dropped == Dropped(source_key=source.key, reason="no tags", detail=detail)


def test_nouns_of_texts_come_after_the_tags_of_scenes() -> None:
    source = image(0, graph(thing()))
    config = TaggingConfig(taggers=("scene-graph", "nouns"))
    (row,) = tag_images([source], config, mentions={source.key: (mentions(source, "table"),)})
    assert tags_of(row) == [("red metal ball", 1.0, "scene-graph"), ("table", 1.0, "nouns")]


def choose(*words, **config):
    """Return the names of the tags that are kept, and of the others with the reasons."""
    tags, refused = choose_tags([tag(word) for word in words], TaggingConfig(**config))
    return names(tags), {one.name: one.reason for one in refused}


def test_names_are_refused_with_a_reason() -> None:
    too_many = {"sky": "names no thing", "kite": "too many names (tagging.max_tags=2)"}
    assert choose("dog", "sky", "cat", "kite", max_tags=2) == (["dog", "cat"], too_many)
    excluded = {"dog": "excluded by the profile"}
    assert choose("Dog", "teddy bear", "dog ", excluded=("DOG",)) == (["teddy bear"], excluded)
    assert choose("x" * 10_000) == ([], {"x" * 60: "too long for a name"})


def test_of_thousands_of_names_the_first_are_looked_at() -> None:
    words = ["o" * number for number in range(1, 2 * MAX_NAMES)]
    tags, refused = choose_tags([tag(word) for word in words], TaggingConfig(max_tags=30))
    assert len(tags) == 30
    assert len(tags) + len(refused) == MAX_NAMES


def test_scenes_keep_the_tags_that_texts_need() -> None:
    sources = [image(number, graph(*TWO_BALLS, BLUE_SIGN)) for number in (0, 1)]
    key = sources[0].key
    target = row_of(TargetRow, source="pair", subject=key, object_ids=("b",))
    row, dropped = tag_images(sources, TaggingConfig(), targets={key: (target,)})
    assert isinstance(row, TagsRow)
    assert [one.objects for one in row.tags] == [("b",)]
    assert isinstance(dropped, Dropped)
    assert dropped.reason == "no chosen text needs an element of it removed"


@pytest.mark.parametrize(
    ("taggers", "tables", "without"),
    [
        (["scene-graph"], ["targets"], {"captions"}),
        (["nouns"], ["mentions"], {"image", "graph", "captions"}),
        (["nouns", "ram"], ["mentions"], {"graph", "captions"}),
        (["ram"], [], {"graph", "captions"}),
    ],
)
def test_what_is_read_depends_on_the_taggers(taggers, tables, without) -> None:
    inputs = STAGE.inputs(TaggingConfig.model_validate({"taggers": taggers}))
    assert [use.table for use in inputs.uses] == tables
    assert set(inputs.without) == without
    assert all(use.counts for use in STAGE.uses)


def test_the_models_are_named_with_the_words(ram) -> None:
    pinned = STAGE.pin(ram)
    assert pinned.ram.revision.startswith("xxh3:")
    assert STAGE.models(pinned) == (f"RAM {pinned.ram.revision}", identify_words())
    assert STAGE.models(TaggingConfig()) == ("scene graphs 1",)
    assert STAGE.models(NOUNS) == (identify_words(),)
    assert STAGE.pin(NOUNS) == NOUNS
    assert STAGE.processes(TaggingConfig()) is None
    assert STAGE.processes(ram) is not None
