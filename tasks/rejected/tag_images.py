"""Name the things in each image (paper 004, section 3.1: the key elements).

Reads ``ImageRow``, and the nouns of the preferred texts about it (``MentionRow``) if these are a
tagger; writes one ``TagsRow`` per image. Needs what the taggers need. Of a scene's graph, the
elements that texts need are kept (``TargetRow``); of other tags each name once, those of texts
first, then by falling score, if it names a thing (ours).

A detector finds a box for any name. Kept are countable things: people, animals, food, vehicles,
furniture, clothes, plants, buildings and their parts. Refused, by the words of ``no_things.txt``,
are places, colours, actions, ideas, materials of whole scenes (sky, sea, grass, floor), and parts
of bodies.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from pairwright.schemas.config import TaggingConfig
from pairwright.schemas.rows import (
    NO_ROWS,
    Dropped,
    ImageRow,
    MentionRow,
    RefusedTag,
    Tag,
    TagsRow,
    TargetRow,
    make_key,
)
from pairwright.tasks.models.devices import count_gpus, count_processes
from pairwright.tasks.models.prepare_ahead import Ready, by_image, in_groups
from pairwright.tasks.models.ram import RamTagger, pin_ram
from pairwright.tasks.models.scene_models import SceneTagger
from pairwright.tasks.store.stage import Stage, Uses

NO_THING, EXCLUDED, TOO_LONG = "names no thing", "excluded by the profile", "too long for a name"
MAX_CHARACTERS = 60  # most characters of a name; RAM's longest has 26
LIST = Path(__file__).with_name("no_things.txt")
WITH_PLURALS = {
    "materials",
    "stuff",
    "places",
    "times",
    "weather",
    "images",
    "events",
    "abstract",
    "bodies",
}
"""Sections whose entries also refuse their plurals: "shorts" are no "short"."""


class WordList(NamedTuple):
    """Word list."""

    things: frozenset[str]
    whole: frozenset[str]
    last: frozenset[str]  # refused also as the last word of a tag
    nouns: frozenset[str]  # words with plurals


def why_refused(name: str, excluded: Iterable[str] = ()) -> str:
    """Return a short constant reason to refuse a name; empty: it is accepted."""
    tag = tidy(name)
    if len(tag) > MAX_CHARACTERS:
        return TOO_LONG
    if tag in {tidy(one) for one in excluded}:
        return EXCLUDED
    return "" if names_thing(tag) else NO_THING


def tidy(name: str) -> str:
    """Return a name in lower case with single spaces."""
    return " ".join(name.casefold().split())


def names_thing(tag: str) -> bool:
    """Return whether a tidy name names a thing: by the list, then its last word, then its ending.

    Of "a of b", a decides: "a glass of water" is a glass.
    """
    words = read_words()
    if _forms(tag) & words.things:
        return True
    if (
        tag in words.whole
        or _forms(tag) & words.whole & words.nouns
        or not any(map(str.isalpha, tag))
    ):
        return False
    if " of " in tag:
        return names_thing(tag.partition(" of ")[0])
    last = tag.rpartition(" ")[2]
    if _forms(last) & words.things:
        return True
    refused = last in words.last or _forms(last) & words.last & words.nouns
    return not refused and not (last.endswith("ing") and len(last) > len("thing"))


def _forms(word: str) -> set[str]:
    """Return a word and its possible singulars."""
    found = {word}
    if word.endswith("ies") and len(word) > len("ties"):
        found.add(f"{word[:-3]}y")
    if re.search(r"(s|x|z|ch|sh)es$", word):
        found.add(word[:-2])
    if word.endswith("s") and not word.endswith("ss"):
        found.add(word[:-1])
    return found


@cache
def read_words() -> WordList:
    """Return the word list."""
    listed = " ".join(
        line for line in LIST.read_text(encoding="utf-8").splitlines() if not line.startswith("#")
    )
    sections = [
        (part.partition("]")[0], part.partition("]")[2].split(","))
        for part in listed.split("[")[1:]
    ]
    found = [
        (section, tidy(entry))
        for section, entries in sections
        for entry in entries
        if entry.strip()
    ]
    others = [(section, entry) for section, entry in found if section != "things"]
    return WordList(
        things=frozenset(entry for section, entry in found if section == "things"),
        whole=frozenset(entry.removeprefix("=") for _, entry in others),
        last=frozenset(entry for _, entry in others if not entry.startswith("=")),
        nouns=frozenset(
            entry.removeprefix("=") for section, entry in others if section in WITH_PLURALS
        ),
    )


def identify_words() -> str:
    """Return the identifier of this word list."""
    return f"names {hashlib.sha256(LIST.read_bytes()).hexdigest()[:12]}"


GROUP = 256  # images per call of a tagger on a GPU, 0.4 MB each
NOUNS, GRAPH = "nouns", "scene-graph"
MAX_NAMES = 1000  # most names of an image; RAM's 4,585 are never all in one
NOT_NEEDED = "no chosen text needs an element of it removed"
Mentions = Mapping[str, tuple[MentionRow, ...]]
Targets = Mapping[str, tuple[TargetRow, ...]]


def tag_images(
    rows: Sequence[ImageRow],
    config: TaggingConfig,
    *,
    mentions: Mentions = NO_ROWS,
    targets: Targets | None = None,
) -> Iterator[TagsRow | Dropped]:
    """Yield the tags of each image, or ``Dropped`` without any.

    ``mentions`` are the nouns of texts, by image; ``targets`` the elements of a rendered image that
    texts need removed, the only ones of its graph to become tags (``None``: all do).
    """
    taggers = make_taggers(config)
    if not taggers:  # only nouns of texts are tags: no image is read
        for row in rows:
            yield _row(row, [], mentions.get(row.key, ()), config)
        return
    on_gpu = _has_weights(config) and count_gpus() > 0
    steps = [tagger.prepare for tagger in taggers]
    prepare = by_image(lambda seen: tuple(step(seen) for step in steps))

    def tag(images: Sequence[Ready[ImageRow, Any]]) -> Iterator[TagsRow | Dropped]:
        found = [
            tagger.tag([image.part[place] for image in images])
            for place, tagger in enumerate(taggers)
        ]
        for image, *lists in zip(images, *found, strict=True):
            seen = list(chain(*lists))
            if targets is not None:
                needed = {target.object_ids for target in targets.get(image.row.key, ())}
                seen = [tag for tag in seen if tag.tagger != GRAPH or tag.objects in needed]
            made = _row(image.row, seen, mentions.get(image.row.key, ()), config)
            if isinstance(made, Dropped) and targets is not None and image.row.graph:
                made = replace(made, reason=NOT_NEEDED)
            yield made

    yield from in_groups([(row, row) for row in rows], prepare, tag, on_gpu=on_gpu, size=GROUP)


def make_taggers(config: TaggingConfig) -> list[SceneTagger | RamTagger]:
    """Return the taggers that read images, in the profile's order."""
    made = {GRAPH: SceneTagger(), "ram": RamTagger(config=config.ram, batch=config.batch_size)}
    return [made[name] for name in config.taggers if name != NOUNS]


def _row(
    row: ImageRow, seen: Sequence[Tag], texts: Sequence[MentionRow], config: TaggingConfig
) -> TagsRow | Dropped:
    named = [Tag(name=noun, score=1.0, tagger=NOUNS) for text in texts for noun in text.nouns]
    own = [tag for tag in seen if tag.tagger == GRAPH]
    others = sorted((tag for tag in seen if tag.tagger != GRAPH), key=lambda tag: -tag.score)
    kept, refused = choose_tags([*named, *others], config)
    tags = (*own, *kept)
    if not tags:
        why = f": {', '.join(tag.name for tag in refused[:5])}" if refused else ""
        return Dropped(source_key=row.key, reason="no tags", detail=f"{row.name}{why}")
    made_of = [f"{tag.tagger} {tag.name} {tag.score} {' '.join(tag.objects)}" for tag in tags]
    key = make_key("tags", row.key, *made_of)
    return TagsRow(key=key, source_key=row.key, subject=row.key, tags=tags, refused_tags=refused)


def choose_tags(
    tags: Iterable[Tag], config: TaggingConfig
) -> tuple[tuple[Tag, ...], tuple[RefusedTag, ...]]:
    """Return the accepted tags, the first of each name, and the refused names with reasons."""
    first: dict[str, Tag] = {}
    for tag in tags:
        first.setdefault(tidy(tag.name), tag)
    kept: list[Tag] = []
    refused: list[RefusedTag] = []
    too_many = f"too many names (tagging.max_tags={config.max_tags})"
    for name, tag in list(first.items())[:MAX_NAMES]:
        why = why_refused(name, config.excluded) or (
            too_many if len(kept) == config.max_tags else ""
        )
        if why:
            refused.append(RefusedTag(name=name[:MAX_CHARACTERS], reason=why))
        else:
            kept.append(replace(tag, name=name))
    return tuple(kept), tuple(refused)


def _name_models(config: TaggingConfig) -> tuple[str, ...]:
    words = () if config.taggers == (GRAPH,) else (identify_words(),)
    return (*(tagger.version for tagger in make_taggers(config)), *words)


def _pin_models(config: TaggingConfig) -> TaggingConfig:
    pinned = {"ram": pin_ram(config.ram, download=config.download)} if _has_weights(config) else {}
    return config.model_copy(update=pinned)


def _has_weights(config: TaggingConfig) -> bool:
    return "ram" in config.taggers


def _fit(stage: Stage, config: TaggingConfig) -> Stage:
    unseen = [
        ("image", make_taggers(config)),
        ("graph", GRAPH in config.taggers),
        ("captions", False),
    ]
    texts = (MENTIONS,) if NOUNS in config.taggers else ()
    targets = (TARGETS,) if GRAPH in config.taggers else ()
    return replace(
        stage,
        uses=(*texts, *targets),
        without=tuple(column for column, wanted in unseen if not wanted),
    )


MENTIONS = Uses(table="mentions", row=MentionRow, kind="many", counts=True)
TARGETS = Uses(table="targets", row=TargetRow, kind="many", counts=True)
STAGE = Stage(
    name="tags",
    group="rejected",
    reads={"images": ImageRow},
    writes=TagsRow,
    function=tag_images,
    config=lambda profile: profile.tagging,
    models=_name_models,
    pin=_pin_models,
    processes=partial(count_processes, _has_weights),
    uses=(MENTIONS, TARGETS),
    fit=_fit,
    only_in=("pairs", "given_preferences"),
)
