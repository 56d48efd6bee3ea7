"""Name the objects in each image (paper 004, section 3.1: the key elements).

Reads ``ImageRow``, and the nouns of the preferred texts about it (``MentionRow``) if these are a
tagger; writes one ``TagsRow`` per image. Needs what the taggers need. Of a scene's graph, the
elements that texts need are tags (``TargetRow``); of other tags each name once, those of texts
first, then by falling score, if it names a countable object (ours).

A detector finds a box for any name. Accepted are countable objects: people, animals, food,
vehicles, furniture, clothes, plants, buildings and their parts. Refused, by the words of
``no_things.txt``, are places, colours, actions, ideas, materials of whole scenes (sky, sea, grass,
floor), and parts of bodies.
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
from pairwright.tasks.models.prepare_ahead import DecodedImage, Ready, by_image, in_groups
from pairwright.tasks.models.ram import RamTagger, pin_ram
from pairwright.tasks.models.scene_models import SceneTagger
from pairwright.tasks.store.stage import Stage, Uses

NO_THING = "names no thing"
EXCLUDED = "excluded by the profile"
TOO_LONG = "too long for a name"
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
    if tag in map(tidy, excluded):
        return EXCLUDED
    return "" if names_thing(tag) else NO_THING


def tidy(name: str) -> str:
    """Return a name in lower case with single spaces."""
    return " ".join(name.casefold().split())


def names_thing(tag: str) -> bool:
    """Return whether a tidy name names an object: by the list, its last word, then its ending.

    Of "a of b", a decides: "a glass of water" is a glass.
    """
    word_list = read_words()
    if _forms(tag) & word_list.things:
        return True
    if _is_listed(tag, word_list.whole, word_list.nouns) or not any(map(str.isalpha, tag)):
        return False
    if " of " in tag:
        return names_thing(tag.partition(" of ")[0])
    last = tag.rpartition(" ")[2]
    if _forms(last) & word_list.things:
        return True
    if _is_listed(last, word_list.last, word_list.nouns):
        return False
    is_action = last.endswith("ing") and len(last) > len("thing")
    return not is_action


def _is_listed(word: str, refused: frozenset[str], nouns: frozenset[str]) -> bool:
    """Return whether a word is refused; of nouns, plurals are as well."""
    return word in refused or bool(_forms(word) & refused & nouns)


def _forms(word: str) -> set[str]:
    """Return a word and its possible singulars."""
    forms = {word}
    if word.endswith("ies") and len(word) > len("ties"):
        forms.add(f"{word[:-3]}y")
    if re.search(r"(s|x|z|ch|sh)es$", word):
        forms.add(word[:-2])
    if word.endswith("s") and not word.endswith("ss"):
        forms.add(word[:-1])
    return forms


@cache
def read_words() -> WordList:
    """Return the word list."""
    things: set[str] = set()
    whole: set[str] = set()
    last: set[str] = set()
    nouns: set[str] = set()
    for section, entry in _read_entries():
        if section == "things":
            things.add(entry)
            continue
        word = entry.removeprefix("=")
        whole.add(word)
        if not entry.startswith("="):
            last.add(entry)
        if section in WITH_PLURALS:
            nouns.add(word)
    return WordList(frozenset(things), frozenset(whole), frozenset(last), frozenset(nouns))


def _read_entries() -> Iterator[tuple[str, str]]:
    """Yield the entries of the word list, each with its section."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    text = " ".join(line for line in lines if not line.startswith("#"))
    for part in text.split("[")[1:]:
        section, _, entries = part.partition("]")
        for entry in entries.split(","):
            if entry.strip():
                yield section, tidy(entry)


def identify_words() -> str:
    """Return the identifier of this word list."""
    return f"names {hashlib.sha256(LIST.read_bytes()).hexdigest()[:12]}"


GROUP = 256  # images per call of a tagger on a GPU, 0.4 MB each
NOUNS = "nouns"
GRAPH = "scene-graph"
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
            yield _tags_row(row, [], mentions.get(row.key, ()), config)
        return
    on_gpu = _has_weights(config) and count_gpus() > 0
    steps = [tagger.prepare for tagger in taggers]

    def prepare(image: DecodedImage) -> tuple[Any, ...]:
        return tuple(step(image) for step in steps)

    def tag(ready: Sequence[Ready[ImageRow, Any]]) -> Iterator[TagsRow | Dropped]:
        tags_by_tagger = [
            tagger.tag([item.part[tagger_index] for item in ready])
            for tagger_index, tagger in enumerate(taggers)
        ]
        for item, *tags in zip(ready, *tags_by_tagger, strict=True):
            image_tags = _needed_tags(chain.from_iterable(tags), item.row.key, targets)
            row = _tags_row(item.row, image_tags, mentions.get(item.row.key, ()), config)
            if isinstance(row, Dropped) and targets is not None and item.row.graph:
                row = replace(row, reason=NOT_NEEDED)
            yield row

    items = [(row, row) for row in rows]
    yield from in_groups(
        items,
        by_image(prepare),
        tag,
        on_gpu=on_gpu,
        size=GROUP,
    )


def _needed_tags(tags: Iterable[Tag], image_key: str, targets: Targets | None) -> list[Tag]:
    """Return the tags without the graph's elements that no text needs removed."""
    if targets is None:
        return list(tags)
    needed = {target.object_ids for target in targets.get(image_key, ())}
    return [tag for tag in tags if tag.tagger != GRAPH or tag.objects in needed]


def make_taggers(config: TaggingConfig) -> list[SceneTagger | RamTagger]:
    """Return the taggers that read images, in the profile's order."""
    ram = RamTagger(config=config.ram, batch=config.batch_size)
    taggers: dict[str, SceneTagger | RamTagger] = {GRAPH: SceneTagger(), "ram": ram}
    return [taggers[name] for name in config.taggers if name != NOUNS]


def _tags_row(
    row: ImageRow,
    tags: Sequence[Tag],
    mentions: Sequence[MentionRow],
    config: TaggingConfig,
) -> TagsRow | Dropped:
    nouns = chain.from_iterable(mention.nouns for mention in mentions)
    noun_tags = [
        Tag(
            name=noun,
            score=1.0,
            tagger=NOUNS,
        )
        for noun in nouns
    ]
    graph_tags = [tag for tag in tags if tag.tagger == GRAPH]
    others = [tag for tag in tags if tag.tagger != GRAPH]
    others.sort(key=lambda tag: -tag.score)
    accepted, refused = choose_tags([*noun_tags, *others], config)
    chosen = (*graph_tags, *accepted)
    if not chosen:
        return _drop_untagged(row, refused)
    content = [f"{tag.tagger} {tag.name} {tag.score} {' '.join(tag.objects)}" for tag in chosen]
    return TagsRow(
        key=make_key("tags", row.key, *content),
        source_key=row.key,
        subject=row.key,
        tags=chosen,
        refused_tags=refused,
    )


def _drop_untagged(row: ImageRow, refused: Sequence[RefusedTag]) -> Dropped:
    names = ", ".join(tag.name for tag in refused[:5])
    detail = f"{row.name}: {names}" if refused else row.name
    return Dropped(
        source_key=row.key,
        reason="no tags",
        detail=detail,
    )


def choose_tags(
    tags: Iterable[Tag], config: TaggingConfig
) -> tuple[tuple[Tag, ...], tuple[RefusedTag, ...]]:
    """Return the accepted tags, the first of each name, and the refused names with reasons."""
    first: dict[str, Tag] = {}
    for tag in tags:
        first.setdefault(tidy(tag.name), tag)
    accepted: list[Tag] = []
    refused: list[RefusedTag] = []
    for name, tag in list(first.items())[:MAX_NAMES]:
        reason = why_refused(name, config.excluded)
        if not reason and len(accepted) == config.max_tags:
            reason = f"too many names (tagging.max_tags={config.max_tags})"
        if reason:
            refused.append(RefusedTag(name=name[:MAX_CHARACTERS], reason=reason))
        else:
            accepted.append(replace(tag, name=name))
    return tuple(accepted), tuple(refused)


def _name_models(config: TaggingConfig) -> tuple[str, ...]:
    versions = tuple(tagger.version for tagger in make_taggers(config))
    if config.taggers == (GRAPH,):
        return versions
    return (*versions, identify_words())


def _pin_models(config: TaggingConfig) -> TaggingConfig:
    if not _has_weights(config):
        return config.model_copy()
    return config.model_copy(update={"ram": pin_ram(config.ram, download=config.download)})


def _has_weights(config: TaggingConfig) -> bool:
    return "ram" in config.taggers


def _names_nouns(config: TaggingConfig) -> bool:
    return NOUNS in config.taggers


def _reads_graphs(config: TaggingConfig) -> bool:
    return GRAPH in config.taggers


def _name_unread(config: TaggingConfig) -> tuple[str, ...]:
    """Return the columns of images that no tagger reads."""
    unread = ["captions"]
    if not _reads_graphs(config):
        unread.append("graph")
    if not make_taggers(config):
        unread.append("image")
    return tuple(unread)


MENTIONS = Uses(table="mentions", row=MentionRow, kind="many", counts=True, when=_names_nouns)
TARGETS = Uses(table="targets", row=TargetRow, kind="many", counts=True, when=_reads_graphs)
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
    without=_name_unread,
    only_in=("pairs", "given_preferences"),
)
