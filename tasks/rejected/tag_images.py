"""Name the objects in each image (paper 004, section 3.1: the key elements).

Reads ``ImageRow``, and the nouns of the preferred texts about it (``MentionRow``) if these are a
tagger; writes one ``TagsRow`` per image. Needs what the taggers need. Of a scene's graph, the
elements that texts need are tags (``TargetRow``); of other tags each name once, those of texts
first, then by falling score, if it names a countable object (ours).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from pairwright.schemas.config import Profile, TaggingConfig
from pairwright.schemas.rows import (
    NO_ROWS,
    Dropped,
    Failed,
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
from pairwright.tasks.perception.image_faults import ImageFault
from pairwright.tasks.perception.served_models import NAME_THINGS, ServedTagger
from pairwright.tasks.perception.taggers import NOUNS, TAGGERS, Tagger
from pairwright.tasks.store.answers import Answers
from pairwright.tasks.store.stage import Stage, Uses
from pairwright.tasks.texts.things import WordList, identify_words, names_thing, read_words, tidy

NO_THING = "names no thing"
EXCLUDED = "excluded by the profile"
TOO_LONG = "too long for a name"
MAX_CHARACTERS = 60  # most characters of a name; RAM's longest has 26


def why_refused(name: str, excluded: Iterable[str] = (), word_list: WordList | None = None) -> str:
    """Return a short constant reason to refuse a name; empty: it is accepted."""
    tag = tidy(name)
    if len(tag) > MAX_CHARACTERS:
        return TOO_LONG
    if tag in map(tidy, excluded):
        return EXCLUDED
    return "" if names_thing(tag, word_list) else NO_THING


GROUP = 256  # images per call of a tagger on a GPU, 0.4 MB each
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
    answers: Answers | None = None,
) -> Iterator[TagsRow | Dropped | Failed]:
    """Yield the tags of each image, or ``Dropped`` without any.

    ``mentions`` are the nouns of texts, by image; ``targets`` the elements of a rendered image that
    texts need removed, the only ones of its graph to become tags (``None``: all do).
    """
    taggers = make_taggers(config, answers)
    if not taggers:  # only nouns of texts are tags: no image is read
        for row in rows:
            yield _tags_row(row, [], mentions.get(row.key, ()), config)
        return
    on_gpu = _has_weights(config) and count_gpus() > 0
    steps = [tagger.prepare for tagger in taggers]

    def prepare(image: DecodedImage) -> tuple[Any, ...]:
        return tuple(step(image) for step in steps)

    def tag(ready: Sequence[Ready[ImageRow, Any]]) -> Iterator[TagsRow | Dropped | Failed]:
        tags_by_tagger = [
            tagger.tag([item.part[tagger_index] for item in ready])
            for tagger_index, tagger in enumerate(taggers)
        ]
        for item, *results in zip(ready, *tags_by_tagger, strict=True):
            faults = [result for result in results if isinstance(result, ImageFault)]
            tags = [result for result in results if not isinstance(result, ImageFault)]
            image_tags = _needed_tags(chain.from_iterable(tags), item.row.key, targets)
            row = _tags_row(item.row, image_tags, mentions.get(item.row.key, ()), config)
            fault = _find_fault(faults, row)
            if fault:
                yield fault.as_row(item.row.key, detail=item.row.name)
                continue
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


def _find_fault(faults: Sequence[ImageFault], row: TagsRow | Dropped) -> ImageFault | None:
    """Return the fault that decides over an image; ``None``: other taggers named enough."""
    for fault in faults:
        if not fault.is_final or isinstance(row, Dropped):
            return fault
    return None


def _needed_tags(tags: Iterable[Tag], image_key: str, targets: Targets | None) -> list[Tag]:
    """Return the tags without the graph's elements that no text needs removed."""
    if targets is None:
        return list(tags)
    needed = {target.object_ids for target in targets.get(image_key, ())}
    return [tag for tag in tags if tag.tagger != GRAPH or tag.objects in needed]


def make_taggers(config: TaggingConfig, answers: Answers | None = None) -> list[Tagger]:
    """Return the taggers that read images, in the profile's order."""
    taggers: list[Tagger] = []
    for name in _names(config):
        tagger = TAGGERS.make(name, config)
        if isinstance(tagger, ServedTagger):
            tagger = replace(tagger, answers=answers)
        taggers.append(tagger)
    return taggers


def _names(config: TaggingConfig) -> list[str]:
    """Return the names of the taggers that read images."""
    return [name for name in config.taggers if name != NOUNS]


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
    word_list = read_words(config.word_list, config.included)
    accepted: list[Tag] = []
    refused: list[RefusedTag] = []
    for name, tag in list(first.items())[:MAX_NAMES]:
        reason = why_refused(name, config.excluded, word_list)
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
    return (*versions, identify_words(config.word_list))


def _pin_models(config: TaggingConfig) -> TaggingConfig:
    for name in _names(config):
        config = TAGGERS.pin(name, config, download=config.download)
    return config


def _has_weights(config: TaggingConfig) -> bool:
    return any(TAGGERS.has_weights(name) for name in _names(config))


def _configure(profile: Profile) -> TaggingConfig:
    tagging = profile.tagging
    return profile.complete(tagging) if tagging.is_served else tagging


def _name_prompts(config: TaggingConfig) -> tuple[str, ...]:
    return (NAME_THINGS,) if config.is_served else ()


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
    reads={"images": ImageRow, "aligned_images": ImageRow},
    writes=TagsRow,
    function=tag_images,
    config=_configure,
    prompts=_name_prompts,
    journal="answers",
    models=_name_models,
    pin=_pin_models,
    processes=partial(count_processes, _has_weights),
    uses=(MENTIONS, TARGETS),
    without=_name_unread,
    only_in=("pairs", "given_preferences"),
)
