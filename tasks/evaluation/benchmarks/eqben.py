"""EqBen (Wang et al. 2023): pairs of images that differ in as little as can be seen, and a caption of each."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from pairwright.tasks.evaluation.benchmark import Benchmark, Data, Exam, find_file, find_image
from pairwright.tasks.evaluation.benchmarks.choices import RULE, paired_exam_of
from pairwright.tasks.evaluation.benchmarks.pairs import NOTE, Pair, ask_pairs, read_pairs
from pairwright.tasks.evaluation.read_json import Given, read_records

PUBLISHED, OWN = "EQBEN.jsonl", "eqben_subset_10percent_final.json"
ARRAYS = (
    "images of YouCook2 are NumPy arrays in EqBen: they are no images here, and their pairs are left out; save them as "
    "PNG under the same name with .png for .npy"
)


class Record(Given):
    """Be a pair of EqBen's list, which is of Winoground's form."""

    image0: str
    image1: str
    caption0: str
    caption1: str


def open_exam(data: Data) -> Exam:
    """Return the questions of paper 003's file, or of EqBen's own."""
    path = find_file(data.folder, PUBLISHED, OWN)
    if path.name == PUBLISHED:
        return paired_exam_of(ask_pairs(read_pairs(path)), notes=(NOTE,))
    records = read_records(path, Record)
    arrays = any(record.image0.endswith(".npy") for record, _ in records)
    pairs = _read(records, path)
    return paired_exam_of(ask_pairs(pairs), notes=(NOTE, ARRAYS) if arrays else (NOTE,))


def _read(records: Sequence[tuple[Record, str]], path: Path) -> Iterator[Pair]:
    for number, (record, where) in enumerate(records):
        first, second = (
            find_image(path.parent, *([f"{name[:-4]}.png"] if name.endswith(".npy") else []), name, where=where)
            for name in (record.image0, record.image1)
        )
        category = record.image0.split("/")[0] if "/" in record.image0 else ""
        captions = (record.caption0, record.caption1)
        yield Pair(name=str(number), images=(first, second), captions=captions, category=category)


BENCHMARK = Benchmark(
    name="eqben",
    measures="which of two almost equal images a caption suits, and the other way round, by where they are from",
    layout=f"{PUBLISHED} (paper 003: 120 pairs) or {OWN} (EqBen's tenth), and the images, also below images/: "
    "eqbensd/844/image0.png",
    open=open_exam,
    rule=RULE,
)
