"""Type what README, first steps and guides say, page by page, into a terminal of which the models
are tiny.

Each page has a folder of its own with what it takes for granted. ``STANDS_FOR`` is typed in place
of its words, ``NOT_HERE`` says what is not run, and why, ``BEFORE`` what was typed by then. The
pages of ``test_guides.py`` are followed there, with a look at what each command does; here each
command only has to end well.
"""

import json
import re
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

import cv2
import httpx2
import numpy as np
import pytest
import skimage.data
import tifffile

import pairwright as pw
from tests.fixtures.chat_server import chat_server
from tests.fixtures.checkpoints import READING_CLIP, write_clip_folder, write_dinov2_folder
from tests.fixtures.command import words_of
from tests.fixtures.families_of_models import write_qwen2_vl
from tests.fixtures.layouts import put_spot_the_diff
from tests.fixtures.photographs import write_photographs
from tests.fixtures.readme import typed_in
from tests.fixtures.scripted_model import answer
from tests.fixtures.tagger import REAL
from tests.fixtures.tars import write_tar
from tests.fixtures.terminal import Terminal, wait_for
from tests.flows.verbs.test_guides import SECTIONS, SMALL, WIDE

ROOT = Path(__file__).parents[3]
DOCS = [
    str(page.relative_to(ROOT))
    for folder in ("start", "guides")
    for page in sorted((ROOT / "docs" / folder).iterdir())
]
PAGES = ["README.md", *DOCS]
NOT_HERE = {
    r"pip install|hf download|source ": "installs, or loads from the Hub: test_installation.py",
    r"pairwright fetch|hf://": "the Hub: test_fetch_weights.py, test_hub_tables.py",
    r"--profile (gpu|paper)|vllm serve": "a GPU, or vLLM: test_launch.py, `make serve-test`",
    r"phase1|phase2": "test_two_phases.py",
    r"torchrun|accelerate launch": "test_train_launched.py, test_train_sharded.py",
    r"pairwright iterate": "test_iterate_rounds.py",
    r"segmenter=sam2": "weights: test_line_of_today.py",
    r"\$\{NAME\}": "somebody's server: test_addresses.py",
    r"pairwright audit": "test_audit_dataset.py",
    r"pairwright reproduce adpo": "test_reproduce_paper.py",
    r"--size paper": "test_train_namc_paper.py",
    r"--push-to-hub": "the Hub: test_push_to_hub.py",
    r"img2dataset": "another project's program; what it writes is read",
    r"mine\.yaml": "test_load_profile.py",
}
BEFORE = {"docs/guides/evaluation.md": ["pairwright train demo --objective sft"]}
"""What a reader has done by then."""
QUICK = "--set optimiser.max_steps=2 --set output.eval_steps=2"
SMALL_PLANTED = "--set planted.max_side=256 --set planted.samples_per_pixel=2"
PLANTED = f"--limit 2 {SMALL_PLANTED}"
SERVES = re.compile(r"pairwright view ")
BUILD_ALBUM = (
    "pairwright build PHOTOS --profile laptop "
    "--set models.chat.endpoint=http://127.0.0.1:8000/v1 --out album"
)


@dataclass(frozen=True)
class World:
    """What pages take for granted: two datasets, files to build from, weights and a server."""

    folder: Path
    stands_for: dict[str, str]


def stands_for(weights, url):
    """Return what is typed in place of a page's words."""
    clip = write_clip_folder(weights / "clip", architecture=READING_CLIP)
    own = [
        f"embedding.clip.checkpoint={clip}",
        f"embedding.dinov2.model={write_dinov2_folder(weights / 'dinov2')}",
    ]
    off = ("rejections", "controls", "grounding", "regions", "confirming", "judging")
    laptop = " ".join(words_of([*own, *(f"{section}.enabled=false" for section in off)]))
    one = "--set run.workers=1 --set models.chat.model=tiny"
    model = write_qwen2_vl(weights / "model")
    plugin = ROOT / "tests/example_plugin/pairwright_example.py"
    return {
        "http://127.0.0.1:8000/v1": url,
        "build PHOTOS --profile laptop": f"build PHOTOS --profile laptop {WIDE} {laptop} {one}",
        "PHOTOS --planted 200 --profile laptop": (
            f"PHOTOS --planted 2 --profile laptop {SMALL_PLANTED} {WIDE} {laptop} {one}"
        ),
        "doctor --profile laptop": f"doctor --profile laptop {laptop}",
        "pairing=nouns": f"pairing=nouns --set nouns.model={REAL}",
        "--out demo": f"--out demo {SMALL}",
        "build planted:PHOTOS": f"build planted:PHOTOS {PLANTED}",
        "make demo": f"pairwright build --out demo {SMALL} && pairwright report demo",
        "make train": "pairwright runs demo",
        "pairwright train demo": f"pairwright train demo {QUICK}",
        "pairwright train album": f"pairwright train album {QUICK}",
        "--model Qwen/Qwen2.5-VL-3B-Instruct": f"--model {model}",
        "--recipe qwen2.5-vl-7b-24gb": f"--recipe qwen2.5-vl-7b-24gb --model {model}",
        "--recipe qwen2.5-vl-3b-24gb": f"--recipe qwen2.5-vl-3b-24gb --model {model}",
        "spot/runs/sft": "demo/runs/sft",
        "JUDGE": "tiny",
        "COLOURS.txt": "colours.txt",
        "pairwright_example.py": str(plugin),
    }


def reply(asked):
    return answer(asked) if asked.images else "A table with a cup, and a table without one."


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    root = tmp_path_factory.mktemp("world")
    write_files(root / "here")
    with chat_server(reply) as server:
        desk = Terminal.opened(root / "desk", TMPDIR=str(root))
        desk.folder, desk.stands_for = root / "here", stands_for(root / "weights", server.url)
        desk.run("make demo")
        desk.run(BUILD_ALBUM)
        yield World(desk.folder, desk.stands_for)


CAPTIONS = (
    "a cup and a spoon on a table",
    "a cup and a fork on a table",
    "a dog and a cup on a table beside a chair",
)


def write_files(here):
    """Write what pages build from."""
    write_photographs(here / "PHOTOS", variants=2)
    write_photographs(here / "MORE", variants=1)
    write_clip(here / "clips/walk.mp4")
    put_spot_the_diff(here / "spot-the-diff/data")
    names = sorted(path.name for path in (here / "PHOTOS").iterdir())
    lines = [
        {"image": f"PHOTOS/{name}", "caption": CAPTIONS[number % 3]}
        for number, name in enumerate(names[:12])
    ]
    (here / "manifest.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (here / "colours.txt").write_text("red green blue")
    (here / "mine").mkdir()
    (here / "mine/describe_image.j2").write_text("Name what you see.")
    prediction = {"id": "1", "caption": "the cup is gone"}
    (here / "predictions.jsonl").write_text(json.dumps(prediction))
    (here / "references.json").write_text(json.dumps({"1": ["the cup is gone", "there is no cup"]}))
    write_states(here)
    write_outline(here / "annotated")
    files = ((name, (here / "PHOTOS" / name).read_bytes()) for name in names)
    write_tar(here / "tars/00000.tar", *files, (f"{Path(names[0]).stem}.txt", b"a cup"))


def write_states(here):
    """Write boards of 16 bits with a good one, and plots in four bands on two dates."""
    board = skimage.data.coffee()[:360, :520, 1].astype(np.uint16) * 200
    for folder in ("boards", "BOARDS"):
        (here / folder).mkdir()
        for number in range(3):
            moved = np.roll(board, 5 * number, axis=1)
            moved[200:230, 90 * number : 90 * number + 40] = 60_000
            cv2.imwrite(str(here / folder / f"{number}.png"), moved)
    cv2.imwrite(str(here / "good.png"), board)
    for folder in ("fields", "FIELDS", "SURVEY"):
        for date, level in {"before": 900, "after": 2000, "label": 255}.items():
            (here / folder / date).mkdir(parents=True)
            plot = np.stack([board[:300, :520] // 20] * 4, axis=2)
            plot[100:160, 40:90] = level
            path = here / folder / date / "plot-0.tif"
            if date == "label":
                mask = np.where(plot[:, :, 0] == level, 255, 0).astype(np.uint8)
                cv2.imwrite(str(path.with_suffix(".png")), mask)
            elif folder == "SURVEY":
                cv2.imwrite(str(path.with_suffix(".png")), (plot[:, :, :3] // 16).astype(np.uint8))
            else:
                tifffile.imwrite(path, plot, photometric="minisblack", planarconfig="contig")


def write_outline(folder):
    """Write a photograph of a kiwi with its outline in COCO's layout."""
    folder.mkdir()
    photograph = skimage.data.coffee()
    photograph[100:200, 150:250] = (150, 200, 60)
    cv2.imwrite(str(folder / "kiwi.png"), photograph[:, :, ::-1])
    square = [150, 100, 250, 100, 250, 200, 150, 200]
    thing = {"image_id": 1, "category_id": 1, "segmentation": [square], "iscrowd": 0}
    coco = {
        "images": [{"id": 1, "file_name": "kiwi.png"}],
        "categories": [{"id": 1, "name": "kiwi"}],
        "annotations": [{**thing, "bbox": [150, 100, 100, 100]}],
    }
    (folder / "things.json").write_text(json.dumps(coco))


def write_clip(path):
    path.parent.mkdir()
    codec = cv2.VideoWriter.fourcc(*"mp4v")
    writer = cv2.VideoWriter(str(path), cv2.CAP_FFMPEG, codec, 4, (96, 64))
    ramp = np.full((64, 96, 3), 90, np.uint8) + np.arange(96, dtype=np.uint8)[None, :, None]
    for number in range(40):
        writer.write(np.roll(ramp, number, 1))
    writer.release()


def commands_of(page):
    return [typed.words for typed in typed_in(page, sentences=False)]


def is_run_here(words):
    return not any(re.search(pattern, words) for pattern in NOT_HERE)


def type_in(desk, words, log):
    if SERVES.match(words):
        look(desk, words, log)
    elif words.startswith("export "):
        desk.export(words)
    else:
        desk.run(words)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", [page for page in PAGES if page not in SECTIONS])
def test_what_a_page_says_ends_well(world, tmp_path, page):
    desk = Terminal.opened(tmp_path / "desk", PAIRWRIGHT_CACHE=str(tmp_path / "cache"))
    shutil.copytree(world.folder, desk.folder, dirs_exist_ok=True)
    desk.stands_for = world.stands_for
    key = next(iter(pw.open(desk.folder / "album")["preferences"].rows())).key
    decision = {"key": key, "verdict": "accept", "at": "2026-01-01T00:00:00Z"}
    (desk.folder / "decisions.jsonl").write_text(json.dumps(decision))
    for words in filter(is_run_here, [*BEFORE.get(page, ()), *commands_of(page)]):
        type_in(desk, words, tmp_path / "log")


def look(desk, words, log):
    """Open the address that a server prints, and stop it."""

    earlier = len(log.read_text()) if log.exists() else 0  # what another server of the page said

    def address():
        return re.search(r"http://127\.0\.0\.1:\S+", log.read_text()[earlier:])

    log.unlink(missing_ok=True)
    process = desk.start(f"{words} --port 0 --no-browser", log)
    url = wait_for(address, process, log)[0]
    with httpx2.Client(follow_redirects=True) as client:
        wait_for(lambda: client.get(url).status_code == 200, process, log)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) in (0, 130)


def test_everything_that_is_not_run_is_there():
    words = [words for page in PAGES for words in commands_of(page)]
    assert all(any(re.search(pattern, typed) for typed in words) for pattern in NOT_HERE)


def test_what_is_not_run_is_tested_elsewhere():
    names = set(re.findall(r"test_\w+\.py", " ".join(NOT_HERE.values())))
    files = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert len(names) > 8
    assert names <= files
