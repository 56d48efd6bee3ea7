"""COLA (Ray et al. 2023), its multi-object pairs: captions of the same words in other combinations."""

from pathlib import PurePosixPath
from urllib.parse import urlsplit

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.benchmark import Benchmark, Data, Exam, find_file, find_image
from pairwright.tasks.evaluation.benchmarks.choices import RULE, paired_exam_of
from pairwright.tasks.evaluation.benchmarks.pairs import NOTE, Pair, ask_pairs, read_pairs
from pairwright.tasks.evaluation.read_json import read_values

PUBLISHED, OWN = "COLA.jsonl", "COLA_multiobjects_matching_benchmark.json"
FIELDS = 4


def open_exam(data: Data) -> Exam:
    """Return the questions of paper 003's file, or of COLA's own."""
    path = find_file(data.folder, PUBLISHED, OWN)
    if path.name == PUBLISHED:
        return paired_exam_of(ask_pairs(read_pairs(path)), notes=(NOTE,))
    pairs = [_pair(number, value, where, data) for number, (value, where) in enumerate(read_values(path))]
    return paired_exam_of(ask_pairs(pairs), notes=(NOTE,))


def _pair(number: int, value: object, where: str, data: Data) -> Pair:
    """Return a pair of COLA's list: address and caption of one image, then of the other."""
    if not isinstance(value, list) or len(value) != FIELDS or not all(isinstance(part, str) for part in value):
        raise ConfigError(f"{where}: must be a list of four texts: image, caption, image, caption")
    names = [PurePosixPath(urlsplit(str(value[place])).path).name for place in (0, 2)]
    first, second = (find_image(data.folder, f"{number}_{name}", name, where=where) for name in names)
    return Pair(name=str(number), images=(first, second), captions=(str(value[1]), str(value[3])))


BENCHMARK = Benchmark(
    name="cola",
    measures="which of two images a caption of objects and attributes suits, and the other way round",
    layout=f"{PUBLISHED} (paper 003) or {OWN} (COLA's own list), and the images, also below images/: "
    "2390970.jpg or 0_2390970.jpg",
    open=open_exam,
    rule=RULE,
)
