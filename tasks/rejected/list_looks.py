"""List the looks of an image's things, from which the dataset's prior is counted (ours).

Reads ``ImageRow``; writes ``LooksRow``. A small table of all images, so that the graphs need not be
read at once.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

import pyarrow as pa

from pairwright.schemas.config import ExpectedImagesConfig
from pairwright.schemas.rows import Dropped, ImageRow, LooksRow, make_key
from pairwright.tasks.store.stage import Stage

ATTRIBUTES = ("colour", "material", "size")
Prior = Mapping[tuple[str, str], Counter[str]]
"""How often things of a shape have each value of an attribute."""


def list_looks(
    rows: Sequence[ImageRow], config: ExpectedImagesConfig
) -> Iterator[LooksRow | Dropped]:
    """Yield shape, colour, material and size of each thing of an image with a scene graph."""
    del config  # no setting applies
    for row in rows:
        if row.graph is None:
            yield Dropped(source_key=row.key, reason="no scene graph")
            continue
        things = row.graph.objects
        yield LooksRow(
            key=make_key("looks", row.key),
            source_key=row.key,
            subject=row.key,
            shapes=tuple(item.shape for item in things),
            colours=tuple(item.colour or "" for item in things),
            materials=tuple(item.material or "" for item in things),
            sizes=tuple(item.size or "" for item in things),
        )


def count_prior(looks: pa.Table) -> Prior:
    """Return the counts of values by shape and attribute, over all images."""
    prior: dict[tuple[str, str], Counter[str]] = {}
    for row in looks.to_pylist():
        for name in ATTRIBUTES:
            for shape, value in zip(row["shapes"], row[f"{name}s"], strict=True):
                if value:
                    prior.setdefault((shape, name), Counter())[value] += 1
    return prior


def expected_value(prior: Prior, shape: str, attribute: str) -> tuple[str, float]:
    """Return the commonest value of an attribute of a kind of thing, and its share.

    Of equally common ones the first by name. Empty and 0: no thing of the kind is known.
    """
    counts = prior.get((shape, attribute), Counter[str]())
    if not counts:
        return "", 0.0
    value, count = min(counts.items(), key=lambda item: (-item[1], item[0]))
    return value, count / counts.total()


STAGE = Stage(
    name="looks",
    group="rejected",
    reads={"images": ImageRow},
    writes=LooksRow,
    function=list_looks,
    without=("image", "captions"),
    config=lambda profile: profile.expected_images,
    enabled=attrgetter("enabled"),
)
