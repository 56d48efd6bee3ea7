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
from pathlib import Path
from typing import Any

import pytest

import pairwright as pw
from tests.fixtures.builds import Recorder, build_here
from tests.fixtures.chat_server import Asked, chat_server
from tests.fixtures.checkpoints import READING_CLIP, write_clip_folder, write_dinov2_folder
from tests.fixtures.grounding_checkpoints import write_grounding_folder
from tests.fixtures.lama_checkpoints import write_lama
from tests.fixtures.photographs import write_photographs
from tests.fixtures.ram_checkpoints import write_ram
from tests.fixtures.sam_checkpoints import write_sam
from tests.fixtures.scripted_model import answer as of_others
from tests.fixtures.scripted_model import kind_of
from tests.fixtures.tagger import REAL
from tests.flows.conftest import WIDE

STEPS = (
    "mentions",
    "tags",
    "boxes",
    "masks",
    "elements",
    "removals",
    "inspected",
    "fitted",
    "rejections",
)
THINGS = ("dog", "cat", "ball", "person")
CAPTION = ("There is a {} in front of a plain wall.", "Beside the {} lies a red ball in the grass.")
SPLIT = "Rewrite it as a list of statements"
PHOTOGRAPHS = 6
SETTINGS = [
    *WIDE,
    "run.rows_per_shard=2",
    *(
        "models.chat.launch.enabled=false",
        "models.chat.model=tiny",
        'models.chat.structured_output="none"',
    ),
    *(
        "models.language.launch.enabled=false",
        "models.language.model=tiny",
        'models.language.structured_output="none"',
    ),
    *("questions.enabled=false", "counterfactuals.enabled=false", "sampled_texts.enabled=false"),
    *("controls.enabled=false", "grounding.enabled=false"),  # which answers of a script do not pass
    *(
        f"{section}.batch_size=1"
        for section in ("embedding", "tagging", "detection", "removals", "inspection")
    ),
    # Masks of random weights are noise all over the image: not dilated, they leave something to
    # fill holes from.
    *("elements.min_area=0.0001", "elements.max_area=1", "segmentation.max_box_area=1"),
    *("removals.dilate_pixels=0", "removals.feather_pixels=0"),
    *(
        "inspection.min_remaining_score=1",
        "inspection.min_grown_score=1",
        "inspection.max_rim=1000",
    ),
    "rejections.fallback=crop",
]


def thing(image: bytes) -> str:
    return THINGS[int(hashlib.sha256(image).hexdigest()[:6], 16) % len(THINGS)]


def answer(asked: Asked) -> str:
    """Write what is right of images that show one of a few things."""
    kind = kind_of(asked)
    if SPLIT in asked.text:
        said = re.search(r"There is a (\w+) in front", asked.text)
        return json.dumps({"sentences": [one.format(said[1] if said else "") for one in CAPTION]})
    if kind == "captions":
        return " ".join(CAPTION).format(*[thing(asked.images[0])] * 2)
    if kind != "difference":
        return of_others(asked)
    first, second = map(thing, asked.images)
    halves = (
        f"first image shows a {first} and a red ball, while the second image shows two dogs "
        f"beside a {second}."
    )
    return f"The difference between the two images is that the {halves}"


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> list[str]:
    """Write every model, and return the settings that name them."""
    folder = tmp_path_factory.mktemp("models")
    clip = write_clip_folder(folder / "clip", architecture=READING_CLIP)
    ram = write_ram(folder / "ram").config
    lama = write_lama(folder / "lama.pt", traced=True)
    return [
        f"embedding.clip.checkpoint={clip}",
        f"embedding.dinov2.model={write_dinov2_folder(folder / 'dinov2')}",
        *(
            f"tagging.ram.{name}={getattr(ram, name)}"
            for name in ("checkpoint", "tags", "thresholds")
        ),
        f"detection.model={write_grounding_folder(folder / 'dino')}",
        f"segmentation.checkpoint={write_sam(folder / 'sam.pth')}",
        f"removals.lama.checkpoint={folder / 'lama.pt'}",
        f"removals.lama.sha256={lama}",
        f"nouns.model={REAL}",
    ]


@pytest.fixture(scope="module")
def photographs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("photographs")
    write_photographs(folder / "all", variants=2)
    chosen = folder / "in"
    chosen.mkdir()
    for path in sorted((folder / "all").iterdir())[:PHOTOGRAPHS]:
        path.rename(chosen / path.name)
    return chosen


@pytest.fixture(scope="module")
def server():
    with chat_server(answer) as server:
        yield server


@pytest.fixture(scope="module")
def words(models, server) -> list[str]:
    return [
        *SETTINGS,
        *models,
        f"models.chat.endpoint={server.url}",
        f"models.language.endpoint={server.url}",
    ]


def build(out: Path, source: Path, words: list[str]) -> tuple[Any, list[str]]:
    """Build in this process, as one of a build's workers does; return the report, and the shards
    that were run."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    recorder = Recorder()
    settings = [*words, "run.workers=1"]
    try:
        report = build_here(
            out, source, profile="gpu", settings=settings, until="rejected", watcher=recorder
        )
        return report, recorder.ran
    finally:
        torch.set_num_threads(threads)


def rows_of(out: Path) -> dict[str, list[Any]]:
    return {table: sorted(pw.open(out)[table].rows(), key=lambda row: row.key) for table in STEPS}


@pytest.fixture(scope="module")
def built(tmp_path_factory, photographs, words):
    out = tmp_path_factory.mktemp("built") / "out"
    report, _ = build(out, photographs, words)
    return out, report


def test_every_step_gives_rows_and_every_row_is_accounted_for(built) -> None:
    out, report = built
    assert report.is_complete, report.failures
    assert all(count.of == count.ok + count.dropped for count in report.counts)
    rows = rows_of(out)
    assert all(rows.values())
    assert {tag.tagger for row in rows["tags"] for tag in row.tags} == {"nouns", "ram"}
    makers = Counter(row.maker for row in rows["rejections"])
    assert makers["removal"] > 0
    assert makers.keys() <= {"removal", "crop"}
    chosen = [score for row in rows["rejections"] for score in row.removal_scores if score.chosen]
    assert len(chosen) == makers["removal"]
    assert all(score.score > 0 and score.clip for score in chosen)
    assert {row.inpainter.split()[0] for row in rows["removals"]} == {"LaMa"}
    assert {row.changed_outside for row in rows["removals"]} == {0}


def test_a_second_build_owes_nothing(built, photographs, words, server) -> None:
    out, before = built
    asked = len(server.asked)
    report, ran = build(out, photographs, words)
    assert ran == []
    assert report.counts == before.counts
    assert {kind_of(one) for one in server.asked[asked:]} <= {"probe"}


def test_its_report_shows_boxes_candidates_and_the_one_that_was_taken(built) -> None:
    pw.open(built[0]).report(pairs=1000)  # all: in which a removal is taken is up to random weights
    folder = built[0] / "report"
    pages = "".join(page.read_text() for page in folder.glob("pairs-*.html"))
    text = " ".join(re.sub(r"<[^>]+>", " ", pages).split())
    for said in (
        "Found elements",
        "tags: ",
        "Candidates",
        "taken",
        "its sum of cosines (Eq. 9)",
        "Filled by LaMa",
    ):
        assert said in text, said
    index = " ".join(re.sub(r"<[^>]+>", " ", (folder / "index.html").read_text()).split())
    assert "Removals that were checked" in index
