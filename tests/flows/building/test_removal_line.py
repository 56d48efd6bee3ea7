"""The ``gpu`` profile up to rejected images: photographs, random checkpoints by the true loaders, a
scripted server.

Every model that the profile names is there in its true files: CLIP, DINOv2, RAM, Grounding DINO,
SAM, LaMa, a spaCy pipeline. Thresholds are such that random weights find something. Sums of floats
differ in their last digits with the size of batches and the number of threads: here every model
takes one image at a time, in one thread, so that builds can be compared.
"""

import hashlib
import json
import re
from collections import Counter

import pytest

import pairwright as pw
from tests.fixtures.builds import Recorder, build_here
from tests.fixtures.chat_server import chat_server
from tests.fixtures.checkpoints import (
    READING_CLIP,
    write_clip_folder,
    write_dinov2_folder,
    write_grounding_folder,
    write_sam,
)
from tests.fixtures.lama_checkpoints import write_lama
from tests.fixtures.photographs import write_photographs
from tests.fixtures.ram_checkpoints import write_ram
from tests.fixtures.scripted_model import answer as of_others
from tests.fixtures.scripted_model import kind_of
from tests.fixtures.tagger import REAL
from tests.flows.conftest import WIDE

STEPS = [
    *("mentions", "tags", "boxes", "masks", "elements"),
    *("removals", "inspected", "fitted", "rejections"),
]
THINGS = ("dog", "cat", "ball", "person")
CAPTION = ("There is a {} in front of a plain wall.", "Beside the {} lies a red ball in the grass.")
SPLIT = "Rewrite it as a list of statements"
# Answers of a script do not pass the checks.
OFF = (
    *("questions", "counterfactuals", "sampled_texts"),
    *("controls", "grounding", "regions", "confirming"),
)
ONE_BY_ONE = ("embedding", "tagging", "detection", "removals", "inspection")
SETTINGS = [
    *WIDE,
    "run.workers=1",
    "run.rows_per_shard=2",
    *(f"{section}.enabled=false" for section in OFF),
    *(f"{section}.batch_size=1" for section in ONE_BY_ONE),
    # Masks of random weights are noise all over the image: not dilated, they leave something to
    # fill holes from.
    "elements.min_area=0.0001",
    "elements.max_area=1",
    "segmentation.max_box_area=1",
    "removals.dilate_pixels=0",
    "removals.feather_pixels=0",
    "inspection.min_remaining_score=1",
    "inspection.min_grown_score=1",
    "inspection.max_rim=1000",
    "inspection.max_left=1000",
    "inspection.max_shift=255",
    "inspection.min_texture=0",
    "rejections.fallback=crop",
]


def served(model, url):
    about = {"launch.enabled": "false", "model": "tiny", "structured_output": "none"}
    return [f"models.{model}.{name}={value}" for name, value in {**about, "endpoint": url}.items()]


def thing(image):
    return THINGS[int(hashlib.sha256(image).hexdigest()[:6], 16) % len(THINGS)]


def answer(asked):
    """Write what is right of images that show one of a few things."""
    kind = kind_of(asked)
    if SPLIT in asked.text:
        (name,) = re.findall(r"There is a (\w+) in front", asked.text) or [""]
        return json.dumps({"sentences": [sentence.format(name) for sentence in CAPTION]})
    if kind == "captions":
        return " ".join(CAPTION).format(*[thing(asked.images[0])] * 2)
    if kind != "difference":
        return of_others(asked)
    first, second = map(thing, asked.images)
    return (
        f"The difference between the two images is that the first image shows a {first} and a red "
        f"ball, while the second image shows two dogs beside a {second}."
    )


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Write every model, and return the settings that name them."""
    folder = tmp_path_factory.mktemp("models")
    ram = write_ram(folder / "ram").config
    lama = write_lama(folder / "lama.pt", traced=True)
    clip = write_clip_folder(folder / "clip", architecture=READING_CLIP)
    return [
        f"embedding.clip.checkpoint={clip}",
        f"embedding.dinov2.model={write_dinov2_folder(folder / 'dinov2')}",
        f"tagging.ram.checkpoint={ram.checkpoint}",
        f"tagging.ram.tags={ram.tags}",
        f"tagging.ram.thresholds={ram.thresholds}",
        f"detection.model={write_grounding_folder(folder / 'dino')}",
        f"segmentation.checkpoint={write_sam(folder / 'sam.pth')}",
        f"removals.lama.checkpoint={folder / 'lama.pt'}",
        f"removals.lama.sha256={lama}",
        f"nouns.model={REAL}",
    ]


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """Write six photographs."""
    folder = tmp_path_factory.mktemp("photographs")
    write_photographs(folder, variants=2)
    for path in sorted(folder.iterdir())[6:]:
        path.unlink()
    return folder


@pytest.fixture(scope="module")
def server():
    with chat_server(answer) as server:
        yield server


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("built") / "out"


@pytest.fixture(scope="module")
def build(models, server, photographs, out):
    """Return a function that builds in this process, in one thread, as one of a build's workers
    does; it returns the report, and the shards that were run."""
    import torch

    settings = [*SETTINGS, *models, *served("chat", server.url), *served("language", server.url)]

    def build():
        recorder = Recorder()
        report = build_here(
            out, photographs, profile="gpu", settings=settings, until="rejected", watcher=recorder
        )
        return report, recorder.ran

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield build
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def report(build):
    report, _ = build()
    assert report.is_complete, report.failures
    return report


@pytest.fixture(scope="module")
def dataset(out, report):
    return pw.open(out)


def test_every_input_is_accounted_for(report):
    assert all(count.of == count.ok + count.dropped for count in report.counts)


def test_every_step_gives_rows(dataset):
    rows = {table: list(dataset[table].rows()) for table in STEPS}
    assert all(rows.values())
    assert {tag.tagger for row in rows["tags"] for tag in row.tags} == {"nouns", "ram"}
    assert {row.inpainter.split()[0] for row in rows["removals"]} == {"LaMa"}
    assert {row.changed_outside for row in rows["removals"]} == {0}


def test_removals_are_chosen_or_crops_drawn(dataset):
    rows = list(dataset["rejections"].rows())
    makers = Counter(row.maker for row in rows)
    assert makers["removal"] > 0
    assert makers.keys() <= {"removal", "crop"}
    chosen = [score for row in rows for score in row.removal_scores if score.chosen]
    assert len(chosen) == makers["removal"]
    assert all(score.score > 0 and score.clip for score in chosen)


def test_a_second_build_owes_nothing(report, build, server):
    count = len(server.asked)
    again, ran = build()
    assert ran == []
    assert again.counts == report.counts
    assert {kind_of(asked) for asked in server.asked[count:]} <= {"probe"}


SHOWN = [
    *("Found elements", "tags: ", "Candidates", "taken"),
    *("its sum of cosines (Eq. 9)", "Filled by LaMa"),
]


def text_of(*pages):
    return " ".join(re.sub(r"<[^>]+>", " ", " ".join(page.read_text() for page in pages)).split())


def test_its_report_shows_boxes_candidates_and_the_one_that_was_taken(out, dataset):
    dataset.report(pairs=1000)  # all: in which a removal is taken is up to random weights
    pages = text_of(*(out / "report").glob("pairs-*.html"))
    assert not [words for words in SHOWN if words not in pages]
    assert "Removals that were checked" in text_of(out / "report/index.html")
