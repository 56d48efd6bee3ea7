"""Images in, tags out: from rendered scenes' graphs, from RAM with a tiny checkpoint, from the
nouns of texts."""

import io

import numpy as np
import pytest
from PIL import Image

from pairwright.schemas.config import TaggingConfig
from pairwright.schemas.rows import (
    Dropped,
    ImageRow,
    MentionRow,
    RefusedTag,
    Tag,
    TagsRow,
    TargetRow,
    make_key,
)
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.images.decode import decode_rgb
from pairwright.tasks.models.prepare_ahead import DecodedImage
from pairwright.tasks.models.ram import RamTagger
from pairwright.tasks.models.scene_models import SceneTagger
from pairwright.tasks.rejected.tag_images import (
    MAX_NAMES,
    STAGE,
    choose_tags,
    identify_words,
    tag_images,
)
from tests.fixtures.graphs import graph, image_row, thing
from tests.fixtures.ram_checkpoints import TAGS, write_ram
from tests.fixtures.rows import row_of

NO_THINGS = {"red", "photo", "grass", "running"}
"""Of the tiny model's tags."""


def image(number: int, pixels: bytes | None = None, scene: SceneGraph | None = None) -> ImageRow:
    key = make_key("image", number)
    return image_row(key, scene, image=pixels or encoded(number), name=f"{number}.png")


def encoded(seed: int, size: tuple[int, int] = (20, 30), mode: str = "RGB") -> bytes:
    noise = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    sink = io.BytesIO()
    Image.fromarray(noise).convert(mode).save(sink, format="PNG")
    return sink.getvalue()


def mention(row: ImageRow, *nouns: str, text: int = 0) -> MentionRow:
    return row_of(
        MentionRow, text, row.key, source=make_key("text", text), subject=row.key, nouns=nouns
    )


@pytest.fixture(scope="module")
def ram(tmp_path_factory: pytest.TempPathFactory) -> TaggingConfig:
    thresholds = tuple(0.3 + 0.02 * place for place in range(len(TAGS)))
    made = write_ram(tmp_path_factory.mktemp("ram"), thresholds=thresholds)
    return TaggingConfig(taggers=("ram",), ram=made.config)


def tags_of(found: TagsRow | Dropped) -> list[tuple[str, float, str]]:
    assert isinstance(found, TagsRow)
    return [(tag.name, tag.score, tag.tagger) for tag in found.tags]


def test_scenes_keep_every_tag_of_their_graphs() -> None:
    """Two alike objects have two tags of one name; neither the list of words nor the most of a
    profile counts."""
    balls = (thing("a", "ball", "red"), thing("b", "ball", "red"), thing("d", "ball", "blue"))
    scene = graph(*balls, thing("c", "sign", "blue"))
    row = image(0, scene=scene)
    (found,) = tag_images([row], TaggingConfig(max_tags=1, excluded=("blue metal sign",)))
    assert isinstance(found, TagsRow)
    (wanted,) = SceneTagger().tag([scene])
    assert found.tags == wanted
    assert [tag.name for tag in found.tags] == [
        "red metal ball",
        "red metal ball",
        "blue metal ball",
        "blue metal sign",
        "two red balls",
        "three balls",
    ]
    assert found.refused_tags == ()
    words = [f"scene-graph {tag.name} 1.0 {' '.join(tag.objects)}" for tag in wanted]
    assert found.key == make_key("tags", row.key, *words)
    assert (found.source_key, found.subject) == (row.key, row.key)


def test_an_image_without_a_graph_has_no_tags() -> None:
    assert list(tag_images([image(0), image(1, scene=graph())], TaggingConfig())) == [
        Dropped(source_key=image(0).key, reason="no tags", detail="0.png"),
        Dropped(source_key=image(1).key, reason="no tags", detail="1.png"),
    ]


def test_ram_names_things_by_falling_score_and_refuses_the_rest(ram: TaggingConfig) -> None:
    rows = [image(seed) for seed in range(6)]
    tagger = RamTagger(config=ram.ram)
    own = tagger.tag([tagger.prepare(DecodedImage(decode_rgb(row.image))) for row in rows])
    for row, wanted, found in zip(rows, own, tag_images(rows, ram), strict=True):
        assert isinstance(found, TagsRow)
        assert found.source_key == row.key
        assert wanted
        names = [tag.name.lower() for tag in wanted]
        assert [tag.name for tag in found.tags] == [name for name in names if name not in NO_THINGS]
        assert {tag.name for tag in found.refused_tags} == NO_THINGS & set(names)
        assert {tag.reason for tag in found.refused_tags} <= {"names no thing"}
        scores = [tag.score for tag in found.tags]
        assert scores == sorted(scores, reverse=True)
        assert {tag.tagger for tag in found.tags} == {"ram"}


def test_names_of_texts_come_first_and_once(ram: TaggingConfig) -> None:
    row = image(3)
    both = ram.model_copy(update={"taggers": ("ram", "nouns")})
    texts = {row.key: (mention(row, "zebra", "Dog", "sky"), mention(row, "table", "zebra", text=1))}
    (alone,), (found,) = tag_images([row], ram), tag_images([row], both, mentions=texts)
    assert "dog" in [name for name, *_ in tags_of(alone)]
    assert tags_of(found)[:3] == [
        ("zebra", 1.0, "nouns"),
        ("dog", 1.0, "nouns"),
        ("table", 1.0, "nouns"),
    ]
    assert tags_of(found)[3:] == [tag for tag in tags_of(alone) if tag[0] != "dog"]
    assert isinstance(found, TagsRow)
    assert RefusedTag(name="sky", reason="names no thing") in found.refused_tags


def test_texts_alone_look_at_no_image() -> None:
    rows = [image(0, b"no image"), image(1, b"none"), image(2, b"none")]
    config = TaggingConfig(taggers=("nouns",))
    texts = {
        rows[0].key: (mention(rows[0], "dog"),),
        rows[1].key: (mention(rows[1], "sky", "sea"),),
    }
    first, *others = tag_images(rows, config, mentions=texts)
    assert tags_of(first) == [("dog", 1.0, "nouns")]
    assert others == [
        Dropped(source_key=rows[1].key, reason="no tags", detail="1.png: sky, sea"),
        Dropped(source_key=rows[2].key, reason="no tags", detail="2.png"),
    ]
    row = image(0, scene=graph(thing("a", "ball", "red")))
    config = TaggingConfig(taggers=("scene-graph", "nouns"))
    (found,) = tag_images([row], config, mentions={row.key: (mention(row, "table"),)})
    assert tags_of(found) == [("red metal ball", 1.0, "scene-graph"), ("table", 1.0, "nouns")]


def test_the_most_are_kept_and_excluded_many_and_long_names_are_refused() -> None:
    names = ["dog", "sky", "cat", "kite", "cup"]
    kept, refused = choose_tags(
        [Tag(name=name, score=1.0, tagger="nouns") for name in names], TaggingConfig(max_tags=2)
    )
    assert [tag.name for tag in kept] == ["dog", "cat"]
    assert [(tag.name, tag.reason) for tag in refused] == [
        ("sky", "names no thing"),
        ("kite", "too many names (tagging.max_tags=2)"),
        ("cup", "too many names (tagging.max_tags=2)"),
    ]
    tags = [Tag(name=name, score=1.0, tagger="ram") for name in ("Dog", "teddy bear", "dog ")]
    kept, refused = choose_tags(tags, TaggingConfig(excluded=("DOG",)))
    assert [tag.name for tag in kept] == ["teddy bear"]
    assert refused == (RefusedTag(name="dog", reason="excluded by the profile"),)
    many = [
        Tag(name=f"word{number:b}".replace("1", "l").replace("0", "o"), score=1.0, tagger="nouns")
        for number in range(5000)
    ]
    kept, refused = choose_tags(
        [Tag(name="x" * 10_000, score=1.0, tagger="nouns"), *many], TaggingConfig(max_tags=30)
    )
    assert len(kept) == 30
    assert len(kept) + len(refused) == MAX_NAMES
    assert refused[0] == RefusedTag(name="x" * 60, reason="too long for a name")


def test_scenes_keep_the_tags_that_texts_need() -> None:
    scene = graph(thing("a", "ball", "red"), thing("b", "ball", "red"), thing("c", "sign", "blue"))
    rows = [image(0, scene=scene), image(1, scene=scene)]
    target = row_of(TargetRow, source="pair", subject=rows[0].key, object_ids=("b",))
    found, dropped = tag_images(rows, TaggingConfig(), targets={rows[0].key: (target,)})
    assert isinstance(found, TagsRow)
    assert [tag.objects for tag in found.tags] == [("b",)]
    assert isinstance(dropped, Dropped)
    assert dropped.reason == "no chosen text needs an element of it removed"


def test_what_is_read_depends_on_the_taggers() -> None:
    def fitted(*taggers: str) -> tuple[tuple[str, ...], set[str]]:
        inputs = STAGE.inputs(TaggingConfig.model_validate({"taggers": taggers}))
        return tuple(use.table for use in inputs.uses), set(inputs.without)

    assert fitted("scene-graph") == (("targets",), {"captions"})
    assert fitted("nouns") == (("mentions",), {"image", "graph", "captions"})
    assert fitted("nouns", "ram") == (("mentions",), {"graph", "captions"})
    assert fitted("ram") == ((), {"graph", "captions"})
    assert all(use.counts for use in STAGE.uses)


def test_the_models_are_named_with_the_words(ram: TaggingConfig) -> None:
    pinned = STAGE.pin(ram)
    assert pinned.ram.revision.startswith("xxh3:")
    assert STAGE.models(pinned) == (f"RAM {pinned.ram.revision}", identify_words())
    assert STAGE.models(TaggingConfig()) == ("scene graphs 1",)
    assert STAGE.models(TaggingConfig(taggers=("nouns",))) == (identify_words(),)
    assert STAGE.pin(TaggingConfig(taggers=("nouns",))) == TaggingConfig(taggers=("nouns",))
    assert STAGE.processes(TaggingConfig()) is None
    assert STAGE.processes(ram) is not None
