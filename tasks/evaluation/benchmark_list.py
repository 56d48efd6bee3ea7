"""All benchmarks: name, measures, layout of the folder, opener, rule of marking, and judge."""

from functools import partial

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.plugins import Registry
from pairwright.tasks.evaluation.benchmark import Benchmark, Rubric
from pairwright.tasks.evaluation.benchmarks import (
    described_pairs,
    hallucinations,
    own_datasets,
    rated,
    two_images,
)
from pairwright.tasks.evaluation.benchmarks.choices import RULE as CHOICE

_choices = partial(Benchmark, rule=CHOICE)
SCENES = "a dataset of rendered scenes: pairwright build --profile scenes"


def _of_people(kind: str, what: str) -> Benchmark:
    measures = f"how close a description of the differences is to people's: {what}"
    layout = f"the published layout (`pairwright sources {kind}`), whose test split is asked about"
    return Benchmark(
        kind,
        measures,
        layout,
        partial(described_pairs.open_published, kind=kind),
        described_pairs.RULE,
    )


ALL = (
    Benchmark(
        "scenes",
        "whether a description of a rendered photograph names things that are not there (CHAIR)",
        SCENES,
        own_datasets.open_scenes,
        own_datasets.CHAIR_RULE,
    ),
    Benchmark(
        "scene-differences",
        "whether a description of how two rendered photographs differ is true of each of them "
        "(CHAIR by halves, and statement by statement), and how close it is to the dataset's own "
        "texts",
        SCENES,
        own_datasets.open_scene_differences,
        own_datasets.HALVES_RULE,
    ),
    _choices(
        "scene-pairs",
        "whether true and false statements about what only one of two rendered photographs shows "
        "are told apart",
        SCENES,
        own_datasets.open_scene_pairs,
    ),
    Benchmark(
        "own",
        "how close a description of the differences is to people's, on the test split of your own "
        "dataset",
        "a dataset whose pairs people described: pairwright build pairs.csv",
        own_datasets.open_own,
        described_pairs.RULE,
    ),
    _of_people(
        "spot-the-diff", "frames of surveillance cameras, by the three protocols that papers use"
    ),
    _of_people("clevr-change", "rendered scenes, with a change and without"),
    _of_people("clevr-dc", "rendered scenes from far viewpoints"),
    _of_people("image-editing-request", "edited photographs, and the requests"),
    _choices(
        "bison",
        "which of two similar images a caption suits (chance: 50 %)",
        "BISON.jsonl (paper 003: 150 questions), and COCO's val2014 images",
        two_images.open_bison,
    ),
    _choices(
        "svo",
        "which of two images a sentence suits (chance: 50 %), by what differs: subject, verb, "
        "object",
        f"SVO_Probes.jsonl (paper 003: 1,500 questions) or {two_images.SVO} (all), and the images, "
        "also below images/: 00017.jpg or 17.jpg, by their ids",
        two_images.open_svo,
    ),
    _choices(
        "nlvr2",
        "whether a statement about two photographs is true (chance: 50 %)",
        f"NLVR2.jsonl (paper 003: 150 questions) or one of {', '.join(two_images.NLVR2)}, and the "
        "images, also below images/: test1-463-0-img0.png",
        two_images.open_nlvr2,
    ),
    _choices(
        "eqben",
        "which of two almost equal images each of two captions suits (chance: 25 %), by where they "
        "are from",
        "EQBEN.jsonl (paper 003: 120 pairs), and the images, also below images/: "
        "eqbensd/844/image0.png",
        two_images.open_eqben,
    ),
    _choices(
        "cola",
        "which of two images each of two captions of objects and attributes suits (chance: 25 %)",
        f"COLA.jsonl (paper 003) or {two_images.COLA} (COLA's own list), and the images, also "
        "below images/: 2390970.jpg or 0_2390970.jpg",
        two_images.open_cola,
    ),
    Benchmark(
        "cad-qa",
        "open questions about what two images have in common and how they differ",
        f"{rated.CAD_QA} and Visual Genome's images, also below images/: VG_100K_2/2406825.jpg",
        rated.open_cad_qa,
        rated.JUDGE_RULE,
        Rubric(prompt="judge_answer", best=5),
    ),
    Benchmark(
        "omnidiff",
        "how close a description of the differences is to people's, and with a judge how much of "
        "theirs it covers",
        f'{rated.OMNIDIFF}, a line {{"id", "image1", "image2", "caption" or "captions", "source"}} '
        "per pair, and the images, also below images/",
        rated.open_omnidiff,
        rated.JUDGE_RULE,
        Rubric(prompt="judge_coverage", best=100, reasoned=True, required=False),
    ),
    Benchmark(
        "mmhal",
        "whether answers about an image say what is not in it, by eight kinds of questions",
        f"{rated.MMHAL} (96 questions), and its images, also below images/: IMAGE_ID.jpg, or named "
        "as their addresses end",
        rated.open_mmhal,
        rated.JUDGE_RULE,
        Rubric(prompt="judge_hallucination", best=6, reasoned=True),
    ),
    Benchmark(
        "amber",
        "what descriptions make up (CHAIR, Cover, Hal, Cog), and yes-or-no questions about things, "
        "attributes, relations",
        "annotations.json, query_all.json (also below query/; the questions in it are asked), "
        "relation.json, safe_words.txt of AMBER's data folder, and the images below image/ or "
        "images/: AMBER_1.jpg; "
        f"{hallucinations.VECTORS} of spaCy, installed or as a folder here, for similar words",
        hallucinations.open_amber,
        hallucinations.AMBER_RULE,
    ),
    Benchmark(
        "object-halbench",
        "whether descriptions name COCO's objects that are not in the image (CHAIR)",
        f"{hallucinations.QUESTIONS} (300 questions, with their images), synonyms_refine.txt of "
        "RLHF-V or CHAIR's synonyms.txt, and COCO's annotations/instances_val2014.json and "
        "captions_val2014.json, or those of train2014 for images from there",
        hallucinations.open_halbench,
        hallucinations.HALBENCH_RULE,
    ),
    _choices(
        own_datasets.PREFERENCES,
        "a dataset, not the model: which chosen and rejected texts the model, as a judge, takes "
        "for true",
        "a dataset with preferences about two images; its report shows what was found",
        own_datasets.open_preferences,
    ),
)
BENCHMARKS = Registry("benchmarks", Benchmark, ALL)


def find_benchmark(name: str) -> Benchmark:
    """Return a benchmark by name."""
    if name not in BENCHMARKS:
        names = ", ".join(BENCHMARKS)
        raise ConfigError(f"--benchmark {name}: unknown benchmark; choose from {names}")
    return BENCHMARKS[name]
