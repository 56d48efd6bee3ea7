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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import httpx2
import numpy as np
import pytest

import pairwright as pw
from tests.fixtures.chat_server import Asked, chat_server
from tests.fixtures.checkpoints import READING_CLIP, write_clip_folder, write_dinov2_folder
from tests.fixtures.families_of_models import write_qwen2_vl
from tests.fixtures.layouts import put_spot_the_diff
from tests.fixtures.photographs import write_photographs
from tests.fixtures.readme import typed_in
from tests.fixtures.scripted_model import answer
from tests.fixtures.tagger import REAL
from tests.fixtures.tars import write_tar
from tests.fixtures.terminal import Terminal, wait_for
from tests.flows.test_guides import SECTIONS, SMALL, WIDE

ROOT = Path(__file__).parent.parent.parent
PAGES = [
    "README.md",
    *(
        str(page.relative_to(ROOT))
        for folder in ("start", "guides")
        for page in sorted((ROOT / "docs" / folder).iterdir())
    ),
]
NOT_HERE = {
    r"pip install|hf download|source ": (
        "installs, or loads from the Hub: tests/soak/test_installation.py"
    ),
    r"pairwright fetch|hf://": (
        "the Hub: tests/flows/verbs/test_fetch_weights.py, tests/tasks/sources/test_hub_tables.py"
    ),
    r"--profile gpu|vllm serve": (
        "a GPU, or vLLM: tests/tasks/serving/test_launch.py, `make serve-test`"
    ),
    r"phase1|phase2": "tests/soak/test_two_phases.py",
    r"torchrun|accelerate launch": (
        "tests/flows/training/test_train_launched.py, test_train_sharded.py"
    ),
    r"pairwright iterate": "tests/flows/training/test_iterate_rounds.py",
    r"--size paper": "tests/flows/training/test_train_namc_paper.py",
    r"--push-to-hub": "the Hub: tests/flows/test_push_to_hub.py",
    r"img2dataset": "another project's program; what it writes is read",
    r"mine\.yaml": "tests/flows/test_load_profile.py",
}
BEFORE = {"docs/guides/evaluation.md": ["pairwright train demo --objective sft"]}
"""What a reader has done by then."""
QUICK = "--set optimiser.max_steps=2 --set output.eval_steps=2"
SERVES = re.compile(r"pairwright view ")


@dataclass(frozen=True)
class World:
    """What pages take for granted: two datasets, files to build from, weights and a server."""

    folder: Path
    stands_for: dict[str, str]


def said(asked: Asked) -> str:
    return answer(asked) if asked.images else "A table with a cup, and a table without one."


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("world")
    weights = root / "weights"
    encoders = (
        write_clip_folder(weights / "clip", architecture=READING_CLIP),
        write_dinov2_folder(weights / "dinov2"),
    )
    model, here = write_qwen2_vl(weights / "model"), root / "here"
    write_files(here)
    own = "--set embedding.clip.checkpoint={} --set embedding.dinov2.model={}".format(*encoders)
    off = " ".join(
        f"--set {name}.enabled=false" for name in ("rejections", "controls", "grounding", "judging")
    )
    one = "--set run.workers=1 --set models.chat.model=tiny"
    with chat_server(said) as server:
        stands_for = {
            "http://127.0.0.1:8000/v1": server.url,
            "build PHOTOS --profile laptop": (
                f"build PHOTOS --profile laptop {own} {WIDE} {off} {one}"
            ),
            "doctor --profile laptop": f"doctor --profile laptop {own} {off}",
            "pairing=nouns": f"pairing=nouns --set nouns.model={REAL}",
            "--out demo": f"--out demo {SMALL}",
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
            "pairwright_example.py": str(ROOT / "tests/example_plugin/pairwright_example.py"),
        }
        desk = Terminal.opened(root / "desk", TMPDIR=str(root))
        desk.folder, desk.stands_for = here, stands_for
        desk.run("make demo")
        desk.run(
            "pairwright build PHOTOS --profile laptop --set "
            "models.chat.endpoint=http://127.0.0.1:8000/v1 --out album"
        )
        yield World(here, stands_for)


def write_files(here: Path) -> None:
    """Write what pages build from."""
    write_photographs(here / "PHOTOS", variants=2)
    (here / "clips").mkdir()
    writer = cv2.VideoWriter(
        str(here / "clips/walk.mp4"), cv2.CAP_FFMPEG, cv2.VideoWriter.fourcc(*"mp4v"), 4, (96, 64)
    )
    for number in range(40):
        writer.write(
            np.roll(
                np.full((64, 96, 3), 90, np.uint8) + np.arange(96, dtype=np.uint8)[None, :, None],
                number,
                1,
            )
        )
    writer.release()
    put_spot_the_diff(here / "spot-the-diff/data")
    names = sorted(path.name for path in (here / "PHOTOS").iterdir())
    captions = (
        "a cup and a spoon on a table",
        "a cup and a fork on a table",
        "a dog and a cup on a table beside a chair",
    )
    lines = [
        {"image": f"PHOTOS/{name}", "caption": captions[n % 3]} for n, name in enumerate(names[:12])
    ]
    (here / "manifest.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (here / "colours.txt").write_text("red green blue")
    pair = {"id": "1", "caption": "the cup is gone"}
    (here / "predictions.jsonl").write_text(json.dumps(pair))
    (here / "references.json").write_text(json.dumps({"1": ["the cup is gone", "there is no cup"]}))
    files = ((name, (here / "PHOTOS" / name).read_bytes()) for name in names)
    write_tar(here / "tars/00000.tar", *files, (f"{Path(names[0]).stem}.txt", b"a cup"))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", [page for page in PAGES if page not in SECTIONS])
def test_what_a_page_says_ends_well(world: World, tmp_path: Path, page: str) -> None:
    desk = Terminal.opened(tmp_path / "desk", PAIRWRIGHT_CACHE=str(tmp_path / "cache"))
    shutil.copytree(world.folder, desk.folder, dirs_exist_ok=True)
    desk.stands_for = world.stands_for
    key = next(iter(pw.open(desk.folder / "album")["preferences"].rows())).key
    decision = {"key": key, "verdict": "accept", "at": "2026-01-01T00:00:00Z"}
    (desk.folder / "decisions.jsonl").write_text(json.dumps(decision))
    for words in [*BEFORE.get(page, ()), *(one.words for one in typed_in(page, sentences=False))]:
        if any(re.search(pattern, words) for pattern in NOT_HERE):
            continue
        if SERVES.match(words):
            look(desk, words, tmp_path / "log")
        elif words.startswith("export "):
            desk.export(words)
        else:
            desk.run(words)


def look(desk: Terminal, words: str, log: Path) -> None:
    """Open the address that a server prints, and stop it."""
    process = desk.start(f"{words} --port 0 --no-browser", log)
    address = wait_for(
        lambda: re.search(r"http://127\.0\.0\.1:\S+", log.read_text()), process, log
    )[0]
    with httpx2.Client(follow_redirects=True) as client:
        wait_for(lambda: client.get(address).status_code == 200, process, log)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) in (0, 130)


def test_everything_that_is_not_run_is_there() -> None:
    words = [one.words for page in PAGES for one in typed_in(page, sentences=False)]
    assert not [
        pattern for pattern in NOT_HERE if not any(re.search(pattern, one) for one in words)
    ]
    files = re.findall(r"tests/[\w/.]+\.py", " ".join(NOT_HERE.values()))
    assert all((ROOT / name).exists() for name in files)
