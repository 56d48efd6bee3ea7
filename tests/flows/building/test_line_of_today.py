"""The profile ``gpu-24`` from ``fetch`` to rejected images: random checkpoints, true loaders.

DINOv3, MM Grounding DINO and SAM 2 come from a stand-in of the Hub, in the layout in which they are
published; SigLIP 2 and LaMa are local files, since the libraries know their sizes by name. A
scripted server writes the texts and names what is there.
"""

import json
import re

import pytest

import pairwright as pw
from tests.fixtures.builds import build_here
from tests.fixtures.chat_server import chat_server
from tests.fixtures.checkpoints import write_grounding_folder
from tests.fixtures.command import run, words_of
from tests.fixtures.file_server import COMMIT, serving_files, use_as_hub
from tests.fixtures.lama_checkpoints import write_lama
from tests.fixtures.newer_checkpoints import (
    write_box_sam_folder,
    write_dinov3_folder,
    write_siglip2_folder,
)
from tests.fixtures.tagger import REAL
from tests.flows.building.test_removal_line import OFF, SETTINGS, WIDE, answer, served


def write_mm_grounding(folder):
    """Write MM Grounding DINO with the file of its image processor, as it is published."""
    write_grounding_folder(folder, is_mm=True)
    whole = json.loads((folder / "processor_config.json").read_text())
    (folder / "preprocessor_config.json").write_text(json.dumps(whole["image_processor"]))
    (folder / "processor_config.json").unlink()
    return folder


HUB = {
    "facebook/dinov3-vitb16-pretrain-lvd1689m": write_dinov3_folder,
    "openmmlab-community/mm_grounding_dino_base_all": write_mm_grounding,
    "facebook/sam2.1-hiera-base-plus": lambda folder: write_box_sam_folder(folder, "sam2_video"),
}
THINGS = ("dog", "red ball", "person")


def reply(asked):
    if "Name the things" in asked.text:
        return json.dumps({"things": THINGS})
    return answer(asked)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    with serving_files() as server:
        for name, write in HUB.items():
            for file in write(tmp_path / "made" / name.replace("/", "-")).iterdir():
                small = file.suffix == ".json"
                server.put_on_hub(name, file.name, file.read_bytes(), small=small)
        use_as_hub(monkeypatch, server, tmp_path / "hub")
        yield server


@pytest.fixture
def photographs(tmp_path):
    from tests.fixtures.photographs import write_photographs

    folder = tmp_path / "photographs"
    write_photographs(folder, variants=2)
    for path in sorted(folder.iterdir())[4:]:
        path.unlink()
    return folder


def test_todays_models_are_fetched_and_give_rows(hub, photographs, tmp_path, capsys):
    lama = write_lama(tmp_path / "lama.pt", traced=True)
    local = [
        f"embedding.clip.checkpoint={write_siglip2_folder(tmp_path / 'siglip2')}",
        f"removals.lama.checkpoint={tmp_path / 'lama.pt'}",
        f"removals.lama.sha256={lama}",
        f"nouns.model={REAL}",
    ]
    off = [f"{section}.enabled=false" for section in OFF]
    with chat_server(reply) as server:
        settings = [
            *(setting for setting in SETTINGS if setting not in WIDE),
            *local,
            *off,
            *served("chat", server.url),
            "mining.quantile=0.01",
            "detection.box_threshold=0",
            "detection.text_threshold=0",
            "inspection.detector_enabled=false",
        ]
        words = words_of(settings)
        assert run("fetch", "--profile", "gpu-24", *words) == 0
        printed = capsys.readouterr().out
        assert "All weights of the gpu-24 profile are present." in printed
        assert len(re.findall("SHA-256", printed)) == len(HUB), "each model's weights"
        out = tmp_path / "out"
        report = build_here(out, photographs, profile="gpu-24", settings=settings, until="rejected")
    assert report.is_complete, report.failures
    dataset = pw.open(out)
    tables = ("tags", "boxes", "masks", "removals", "rejections")
    rows = {table: list(dataset[table].rows()) for table in tables}
    assert all(rows.values())
    assert {tag.tagger for row in rows["tags"] for tag in row.tags} <= {"nouns", "served"}
    assert "served" in {tag.tagger for row in rows["tags"] for tag in row.tags}
    assert {row.embedder for row in dataset["embeddings"].rows()} > {"clip", "encoder"}
    found = json.loads((out / "build.json").read_text())["profile"]["found"]
    assert found["embedding.encoder.revision"] == COMMIT
    assert found["detection.revision"] == COMMIT
    assert found["segmentation.revision"] == COMMIT


def test_what_is_missing_is_one_message(photographs, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "empty"))
    monkeypatch.setenv("PAIRWRIGHT_CACHE", str(tmp_path / "cache"))
    command = "models.chat.launch.command=[no-such-vllm]"
    words = ["build", photographs, "--profile", "gpu-24", "--out", tmp_path / "out"]
    assert run(*words, *words_of([command, f"nouns.model={REAL}"])) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) < 12, "one screen"
    for missing in (
        *("no-such-vllm", "timm/ViT-B-16-SigLIP2", "dinov3-vitb16", "mm_grounding_dino_base_all"),
        *("sam2.1-hiera-base-plus", "big-lama.pt"),
    ):
        assert missing in error
    assert "pairwright fetch --profile gpu-24 --served" in error
    assert not (tmp_path / "out").exists()
