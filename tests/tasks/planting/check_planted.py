"""Independent checks of planted photographs: own code reads masks and pixels, and the pair's text.

Nothing here is shared with what plants and writes, but the form of the rows.
"""

import colorsys
import io
import re

import numpy as np
from PIL import Image

from pairwright.schemas.rows import ImageRow
from pairwright.schemas.scene import Mask, SceneGraph, SceneObject

HUES = {
    "red": 0,
    "orange": 28,
    "yellow": 48,
    "green": 132,
    "turquoise": 178,
    "blue": 224,
    "purple": 277,
    "pink": 335,
}
"""Degrees."""
MAX_TURN = 32
"""Largest difference of a thing's hue from that of its colour, in degrees."""
PLAIN = ("usual light", "the usual view")


def fill(mask: Mask) -> np.ndarray:
    """Return the pixels of COCO's run lengths, column by column."""
    flat = np.zeros(mask.height * mask.width, bool)
    position = 0
    for number, count in enumerate(mask.counts):
        flat[position : position + count] = number % 2 == 1
        position += count
    return flat.reshape(mask.width, mask.height).T


def pixels_of(row: ImageRow) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(row.image)).convert("RGB"))


def is_plain(graph: SceneGraph) -> bool:
    return (graph.light, graph.viewpoint) == PLAIN


def find_faults(row: ImageRow, photograph: np.ndarray) -> list[str]:
    """Return what is wrong with one planted photograph; ``photograph``: the original, scaled."""
    graph = row.graph
    assert graph is not None
    pixels = pixels_of(row)
    faults: list[str] = []
    everything = np.zeros(pixels.shape[:2], int)
    for item in graph.objects:
        mask = fill(item.mask)
        everything += mask
        faults += _find_object_faults(item, mask, pixels, graph)
    if everything.max() > 1:
        faults.append("two things share pixels")
    if is_plain(graph):
        touched = np.zeros(pixels.shape[:2], bool)
        for item in graph.objects:
            assert item.touched is not None
            touched |= fill(item.touched)
        if (pixels[~touched] != photograph[~touched]).any():
            faults.append("bytes outside things and shadows differ")
    return [f"{row.name}: {fault}" for fault in faults]


def _find_object_faults(
    item: SceneObject, mask: np.ndarray, pixels: np.ndarray, graph: SceneGraph
) -> list[str]:
    faults: list[str] = []
    rows, columns = np.nonzero(mask)
    height, width = mask.shape
    box = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    if item.box != box:
        faults.append(f"{item.id}: box {item.box}, is {box}")
    if box[0] == 0 or box[1] == 0 or box[2] == width or box[3] == height:
        faults.append(f"{item.id}: cut off")
    third = int(3 * (box[0] + box[2]) / 2 / width)
    if item.column != ("left", "centre", "right")[third]:
        faults.append(f"{item.id}: column {item.column}, is {third}")
    if mask.mean() < 0.0025:
        faults.append(f"{item.id}: covers {mask.mean():.4f}")
    has_own_light = graph.light in ("warm light", "cool light")
    if item.colour in HUES and item.shape not in ("sign", "book", "chair") and not has_own_light:
        turn = _measure_turn(pixels[mask], HUES[item.colour])
        if turn > MAX_TURN:
            faults.append(
                f"{item.id}: {item.colour} {item.material} {item.shape} is {turn:.0f} off"
            )
    return faults


def _measure_turn(colours: np.ndarray, hue: float) -> float:
    """Return the median difference of the most colourful pixels' hue from a hue, in degrees."""
    spread = colours.max(axis=1).astype(int) - colours.min(axis=1)
    colourful = colours[spread >= np.percentile(spread, 60)] / 255
    hues = np.array([colorsys.rgb_to_hsv(*colour)[0] * 360 for colour in colourful])
    turns = np.abs((hues - hue + 180) % 360 - 180)
    return float(np.median(turns))


def find_pair_faults(first: ImageRow, second: ImageRow, types: tuple[str, ...]) -> list[str]:
    """Return what is wrong with a pair: things that differ unsaid, or are said to and do not."""
    assert first.graph is not None
    assert second.graph is not None
    before = {item.id: item for item in first.graph.objects}
    after = {item.id: item for item in second.graph.objects}
    faults: list[str] = []
    seen: set[str] = set()
    for name in {*before, *after}:
        kinds = _name_differences(before.get(name), after.get(name))
        seen |= kinds
        if not is_plain(first.graph) or not is_plain(second.graph):
            continue
        differs = _pixels_differ(first, second, [before.get(name), after.get(name)])
        if differs != bool(kinds):
            faults.append(f"{name}: {kinds or 'no change'}, pixels differ: {differs}")
    stated = {*types} - {"no_change"}
    if stated != seen:
        faults.append(f"stated {stated}, seen {seen}")
    return [f"{first.name}, {second.name}: {fault}" for fault in faults]


def _name_differences(before: SceneObject | None, after: SceneObject | None) -> set[str]:
    if before is None:
        return {"addition"}
    if after is None:
        return {"disappearance"}
    if before.shape != after.shape:
        return {"substitution"}
    names = {"colour", "material", "size", "pose", "text"}
    kinds = {name for name in names if getattr(before, name) != getattr(after, name)}
    # The framing may move a thing that stands between two columns.
    if not kinds and before.column != after.column and before.clear and after.clear:
        return {"move"}
    return kinds


def _pixels_differ(first: ImageRow, second: ImageRow, states: list[SceneObject | None]) -> bool:
    region = np.zeros((first.height, first.width), bool)
    for item in states:
        if item is not None:
            region |= fill(item.mask)
    return bool((pixels_of(first)[region] != pixels_of(second)[region]).any())


def find_text_faults(text: str, first: SceneGraph, second: SceneGraph) -> list[str]:
    """Return the shapes, colours and totals that a text names and neither photograph has."""
    faults: list[str] = []
    shown = {item.shape for graph in (first, second) for item in graph.objects}
    colours = {item.colour for graph in (first, second) for item in graph.objects}
    words = set(re.findall(r"[a-z]+", text.lower()))
    for colour in words & {*HUES, "white", "black"}:
        if colour not in colours:
            faults.append(f"names {colour}: {text}")
    shapes = {"ball", "cube", "cylinder", "cone", "pyramid", "ring", "vase", "bowl", "mug"}
    shapes |= {"teapot", "box", "book", "lamp", "chair", "robot", "car", "duck", "sign"}
    for shape in words & shapes:
        if shape not in shown:
            faults.append(f"names a {shape}: {text}")
    if re.search(r"\bin all\b|\bobjects\b.*\bcount", text):
        faults.append(f"totals: {text}")
    return faults
