"""Write pairs as tasks of Label Studio, with the places where they differ as predictions.

``data/SPLIT.json`` is a list of tasks, to import as it is; ``label_config.xml`` is the labelling
interface: both images, the description, boxes and brushes. Boxes are in percent of the image; masks
are Label Studio's own run lengths. Images are files that Label Studio serves from its local storage
(``/data/local-files/?d=NAME/...``).
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export import form
from pairwright.tasks.export.coco import size_of
from pairwright.tasks.export.lines import JSON_LIST, MediaFolder, Record, decode_files, open_lines
from pairwright.tasks.export.paired_row import as_paired
from pairwright.tasks.images.masks import decode_mask
from pairwright.tasks.images.regions import Region

LOCAL = "/data/local-files/?d="
CONFIG = "label_config.xml"
SIDES = ("first", "second")
CHANNELS = 4
"""Channels of Label Studio's masks: red, green, blue, opacity."""
LENGTH_BITS = (3, 4, 8, 16)
"""Bits of a run's length that the header offers."""
MAX_RUN = 1 << LENGTH_BITS[-1]


def _to_records(
    row: PreferenceRow, media: MediaFolder, setting: form.ExportSettings
) -> Iterator[tuple[str, Record]]:
    paired = as_paired(row)
    if len(row.images) != 2:
        raise form.UnheldError("not two images")
    results: list[Record] = []
    sizes = [size_of(image) for image in row.images]
    for number, region in enumerate(paired.regions or ()):
        results += _make_results(region, sizes[region.side], number)
    names = [media.put(image) for image in row.images]
    data: Record = {"key": row.key, "pair": row.subject, "text": paired.difference}
    for side, name in zip(SIDES, names, strict=True):
        data[side] = f"{LOCAL}{quote(setting.name)}/{name}"
    task: Record = {"data": data, "predictions": []}
    if results:
        task["predictions"].append({"model_version": "pairwright", "result": results})
    yield row.split, task


def _make_results(region: Region, size: tuple[int, int], number: int) -> list[Record]:
    """Return the box and the mask of a region."""
    width, height = size
    x0, y0, x1, y1 = region.box
    side = SIDES[region.side]
    common = {"to_name": side, "original_width": width, "original_height": height}
    common["image_rotation"] = 0
    box = {
        "x": 100 * x0 / width,
        "y": 100 * y0 / height,
        "width": 100 * (x1 - x0) / width,
        "height": 100 * (y1 - y0) / height,
        "rotation": 0,
        "rectanglelabels": [region.label],
    }
    mask = {
        "format": "rle",
        "rle": encode_brush(decode_mask(region.mask)),
        "brushlabels": [region.label],
    }
    return [
        {"id": f"box-{number}", "type": "rectanglelabels", "from_name": f"{side}-boxes"}
        | common
        | {"value": box},
        {"id": f"mask-{number}", "type": "brushlabels", "from_name": f"{side}-masks"}
        | common
        | {"value": mask},
    ]


def encode_brush(mask: NDArray[np.bool_]) -> list[int]:
    """Return the bytes of a mask ``(h, w)`` in Label Studio's run lengths.

    The layout is that of thi.ng's rle-pack: 32 bits with the number of values, 5 with the bits of a
    value, four times 4 with the bits of a length, then runs: 1, which length it has, the length,
    the value. All lengths are one less than they are.
    """
    values = np.repeat(mask.ravel(), CHANNELS)
    bits = [f"{values.size:032b}", f"{8 - 1:05b}", *(f"{bits - 1:04b}" for bits in LENGTH_BITS)]
    ends = np.append(np.flatnonzero(values[1:] != values[:-1]) + 1, values.size)
    start = 0
    for end in ends.tolist():
        value = 255 if values[start] else 0
        for run_start in range(start, end, MAX_RUN):
            bits.append(_encode_run(min(end - run_start, MAX_RUN), value))
        start = end
    text = "".join(bits)
    padded = text + "0" * (-len(text) % 8)
    return list(int(padded, 2).to_bytes(len(padded) // 8, "big"))


def _encode_run(length: int, value: int) -> str:
    """Return the bits of a run of at most ``MAX_RUN`` equal values."""
    for index, width in enumerate(LENGTH_BITS):
        if length <= 1 << width:
            return f"1{index:02b}{length - 1:0{width}b}{value:08b}"
    raise ValueError(f"a run of {length} values is too long")


def _finish(folder: Path, setting: form.ExportSettings, sizes: form.Sizes) -> None:
    """Write the labelling interface with the labels of all tasks."""
    del setting
    labels: dict[str, None] = {}
    for split in sizes:
        for task in json.loads((folder / f"data/{split}.json").read_text(encoding="utf-8")):
            for result in _results_of(task):
                labels.update(dict.fromkeys(result["value"].get("rectanglelabels", ())))
    options = "".join(f"<Label value={quoteattr(label)}/>" for label in labels or ["change"])
    lines = ["<View>", '  <Text name="text" value="$text"/>']
    for side in SIDES:
        lines += [
            f'  <Image name="{side}" value="${side}"/>',
            f'  <RectangleLabels name="{side}-boxes" toName="{side}">{options}</RectangleLabels>',
            f'  <BrushLabels name="{side}-masks" toName="{side}">{options}</BrushLabels>',
        ]
    lines.append("</View>")
    (folder / CONFIG).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _results_of(task: Mapping[str, Any]) -> Iterator[Record]:
    for prediction in task["predictions"]:
        yield from prediction["result"]


def _check_folder(
    folder: Path,
    processor: Any,  # noqa: ARG001 - as for every form
) -> Iterator[str]:
    for path in sorted((folder / "data").glob("*.json")):
        name = f"data/{path.name}"
        with form.wrap_row_errors(name):
            tasks = json.loads(path.read_text(encoding="utf-8"))
        for number, task in enumerate(tasks, start=1):
            where = f"{name}, task {number} ({task['data']['key']})"
            with form.wrap_row_errors(where):
                _check(folder, task)
            yield where


def _check(folder: Path, task: Record) -> None:
    urls = [task["data"][side] for side in SIDES]
    for url in urls:
        form.require(url.startswith(LOCAL), f"{url} is not in Label Studio's local storage")
    names = [url.removeprefix(LOCAL).partition("/")[2] for url in urls]
    decode_files(folder, names)
    for result in _results_of(task):
        value = result["value"]
        form.require(result["to_name"] in SIDES, f"{result['id']} is of no image")
        if result["type"] == "rectanglelabels":
            right, bottom = value["x"] + value["width"], value["y"] + value["height"]
            is_inside = 0 <= value["x"] < right <= 100.01 and 0 <= value["y"] < bottom <= 100.01
            form.require(is_inside, f"{result['id']} is outside of its image")
        else:
            size = int.from_bytes(bytes(value["rle"][:4]), "big")
            pixels = result["original_width"] * result["original_height"]
            form.require(size == CHANNELS * pixels, f"{result['id']} has another size")


FORM = form.Form(
    name="label-studio",
    about="pairs with the places where they differ, to check by hand in Label Studio: JSON, images",
    cannot=(
        "It holds pairs, with boxes and masks where these are known (given change masks, rendered "
        "and planted scenes), and no rejected texts or images. Label Studio reads the images from "
        "its local storage: the folder must be below LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT."
    ),
    opens=open_lines(_to_records, JSON_LIST, finish=_finish),
    check=_check_folder,
    use=(
        "```bash\n"
        "LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true \\\n"
        "LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT=PARENT label-studio start NAME --init \\\n"
        "    --label-config FOLDER/label_config.xml\n"
        "```\n\n"
        "PARENT is the absolute path of the folder that FOLDER lies in. In the project, add FOLDER "
        "by its absolute path as a local storage (Settings, Cloud Storage, Local files), without "
        "synchronising it: Label Studio serves images of such folders only. Then import "
        "`data/train.json`."
    ),
    owns=frozenset({"data", "images", CONFIG}),
    reads="pairs",
    knows_pairs=True,
)
