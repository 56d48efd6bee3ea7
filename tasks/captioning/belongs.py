"""Say whether a caption of one photograph is known to be false of another, from what it mentions.

Works on any caption's words, whoever wrote it: what it mentions is looked for in both scene graphs. Where nothing is
found that the other photograph lacks, the caption may be true of both.
"""

import re
from collections.abc import Iterator

from pairwright.schemas.claims import Selector
from pairwright.schemas.phrases import noun, some, surface
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.captioning.statements import describe


def false_of_other(caption: str, own: SceneGraph, other: SceneGraph) -> bool:
    """Say whether the caption mentions something that its own photograph has and the other lacks."""
    return any(_says(caption, words) for words in _own_words(own, other))


def _own_words(own: SceneGraph, other: SceneGraph) -> Iterator[str]:
    """Yield phrases that are true of the one photograph only."""
    yield from (
        getattr(own, name) for name in ("place", "light", "viewpoint") if getattr(own, name) != getattr(other, name)
    )
    if len(own.objects) != len(other.objects):
        yield some(Selector(), len(own.objects))
    for thing in own.objects:
        for names in ((), ("size",)):
            selector = describe(thing, *names)
            if not selector.select(other):
                yield noun(selector)
                yield noun(selector, 2)
        for name in ("facing", "pose", "text"):
            value = getattr(thing, name)
            if value is not None and not describe(thing, name).select(other):
                yield f"{noun(describe(thing))} {surface(name, value)}"


def _says(caption: str, words: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(words)}(?!\w)", caption, re.IGNORECASE) is not None
