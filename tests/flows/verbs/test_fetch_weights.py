"""`pairwright fetch` as a user calls it, from stand-ins of the Hub and of a server of files."""

import json
import os
import random
import re
from dataclasses import replace
from hashlib import sha256

import pytest

from pairwright.flows.building.find_models import pin_models
from pairwright.flows.pipeline.load_profile import load_profile
from pairwright.tasks.models import sam as sam_segmenter
from pairwright.tasks.models import weights as find_weights
from tests.fixtures.checkpoints import write_dinov2_folder, write_sam
from tests.fixtures.command import run, words_of
from tests.fixtures.file_server import COMMIT, serving_files, use_as_hub

PROFILE = """
source: "scenes:"
embedding: {embedders: [dinov2], dinov2: {model: owner/dinov2}}
mining: {weights: [1]}
segmentation: {segmenter: sam, model: vit_b}
"""
SHARDS = {f"model-0000{n}-of-00002.safetensors": random.Random(n).randbytes(5000) for n in (1, 2)}
INDEX = {"weight_map": dict(zip("ab", SHARDS, strict=True))}
SMALL = {
    "config.json": b"{}",
    "tokenizer.json": b"{ }",
    "model.safetensors.index.json": json.dumps(INDEX).encode(),
}
OTHERS = (
    *("consolidated.safetensors", "pytorch_model.bin"),
    *("original/a.safetensors", "README.md"),
)
SERVED = [
    *("--until", "captioning"),
    *words_of(["captions.writer=served", "models.chat.launch.enabled=true"]),
    *words_of(["models.chat.model=owner/served"]),
    "tests",
]
MISSING = "models.chat.model: owner/served is not on this machine"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return write_dinov2_folder(folder / "dinov2"), write_sam(folder / "sam.pth").read_bytes()


@pytest.fixture
def web(models, tmp_path, monkeypatch):
    dinov2, sam = models
    with serving_files() as server:
        for file in dinov2.iterdir():
            small = file.suffix == ".json"
            server.put_on_hub("owner/dinov2", file.name, file.read_bytes(), small=small)
        url, digest = server.put("/sam.pth", sam), sha256(sam).hexdigest()
        file = replace(sam_segmenter.FILES["vit_b"], name="sam.pth", url=url, sha256=digest)
        monkeypatch.setattr(sam_segmenter, "FILES", {"vit_b": file})
        use_as_hub(monkeypatch, server, tmp_path / "hub")
        monkeypatch.setenv("PAIRWRIGHT_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(find_weights, "RETRIES", 0)
        yield server


@pytest.fixture
def profile(tmp_path):
    (tmp_path / "mine.yaml").write_text(PROFILE)
    return str(tmp_path / "mine.yaml")


@pytest.fixture
def fetch(web, profile, capsys):
    def call(*words):
        """Return the verb's exit code and what it printed."""
        code = run("fetch", "--profile", profile, *words)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def rows(out, word):
    """Return the beginnings of the lines with a word."""
    return [line.split()[:3] for line in out.splitlines() if word in line]


def test_everything_comes_verified_and_a_build_then_finds_it(web, fetch, profile, tmp_path):
    code, out, err = fetch()
    assert (code, err) == (0, "")
    size = sum(len(data) for path, data in web.files.items() if path.startswith("/owner/dinov2"))
    assert f"{tmp_path / 'hub'}: 3 files, {size / 1e3:.1f} kB\n" in out
    assert f"\n{tmp_path / 'cache/weights'}: 1 file, " in out
    assert rows(out, "SHA-256") == [
        ["embedding.dinov2", "owner/dinov2", COMMIT[:12]],
        ["segmentation", f"127.0.0.1:{web.port}", "sam.pth"],
    ]
    assert len(rows(out, "git SHA-1")) == 2
    assert profile in out.splitlines()[-1]
    requests = len(web.asked)
    pinned = pin_models(load_profile(profile), "")
    assert pinned.found["embedding.dinov2.revision"] == COMMIT
    assert pinned.resolved.embedding.dinov2.revision == COMMIT
    assert pinned.embedding.dinov2.revision == "", "what was found is no setting"
    assert pinned.resolved.segmentation.revision.startswith("xxh3:")
    assert fetch()[0] == 0
    assert len(web.asked) == requests


def test_check_fetches_nothing_and_says_what_is_missing(web, fetch, tmp_path):
    code, out, err = fetch("--check")
    assert code == 1
    assert not web.asked
    assert not rows(out, "SHA-256")
    assert re.search(f"error: embedding.dinov2: owner/dinov2 .*{tmp_path}/hub", err)
    assert re.search(f"error: segmentation: sam.pth .*{tmp_path}/cache/weights/sam.pth", err)
    assert "--check" in err.splitlines()[-1]
    assert fetch()[0] == fetch("--check")[0] == 0


def test_only_what_the_stages_load_is_fetched(fetch):
    code, out, _ = fetch("--until", "mining")
    assert (code, "sam.pth" in out) == (0, False)
    code, out, _ = fetch("--set", "rejections.enabled=false", "--check")
    assert (code, "sam.pth" in out) == (0, False)
    code, out, _ = fetch("--set", "embedding.embedders=[gradients]", "--until", "mining")
    assert (code, "no weights" in out.splitlines()[-1]) == (0, True)


def test_what_is_damaged_is_named_and_fetched_again(fetch, tmp_path):
    fetch()
    (weights,) = (tmp_path / "hub").rglob("snapshots/*/model.safetensors")
    sam = tmp_path / "cache/weights/sam.pth"
    data, state = weights.read_bytes(), sam.stat()
    weights.resolve().write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    sam.write_bytes(bytes(state.st_size))
    os.utime(sam, ns=(state.st_atime_ns, state.st_mtime_ns))  # so that only its bytes tell
    code, out, err = fetch("--check")
    assert code == 1
    assert len(rows(out, "DAMAGED")) == 1
    assert re.search(f"embedding.dinov2: {weights} .*SHA-256 ", err)
    assert re.search(f"segmentation: {sam} .*SHA-256 ", err)
    code, _, err = fetch()
    assert (code, err) == (0, "")
    assert weights.read_bytes() == data
    assert fetch("--check")[0] == 0


def test_what_cannot_be_had_does_not_hold_up_the_rest(web, fetch):
    del web.files[f"/owner/dinov2/resolve/{COMMIT}/config.json"]
    code, out, err = fetch()
    assert code == 1
    assert "embedding.dinov2: owner/dinov2 " in err
    assert "hf download owner/dinov2 config.json" in err
    assert err.count("error:") == 1
    assert rows(out, "published") == [["segmentation", f"127.0.0.1:{web.port}", "sam.pth"]]


def test_served_models_are_left_out_unless_they_are_asked_for(web, fetch, tmp_path):
    for name, data in (SHARDS | SMALL | dict.fromkeys(OTHERS, b"other")).items():
        web.put_on_hub("owner/served", name, data, small=name in SMALL)
    code, out, _ = fetch(*SERVED)
    assert code == 0
    option = r"--served, .*--set models\.chat\.launch\.download=true"
    assert re.search(rf"owner/served, .*\(models\.chat\).*{option}", out)
    code, _, err = fetch(*SERVED, "--served", "--check")
    assert code == 1
    assert MISSING in err
    assert fetch(*SERVED, "--served")[0] == 0
    (folder,) = (tmp_path / "hub/models--owner--served/snapshots").iterdir()
    assert {file.name for file in folder.iterdir()} == {*SHARDS, *SMALL}
    code, out, _ = fetch(*SERVED, "--served", "--check")
    assert code == 0
    assert len(rows(out, "owner/served")) == 5
    (folder / "model-00002-of-00002.safetensors").unlink()
    code, _, err = fetch(*SERVED, "--served", "--check")
    assert code == 1
    assert MISSING in err


def test_a_build_finds_a_missing_served_model_first(web, fetch, profile, tmp_path, capsys):
    """With the line that fetches it; an incomplete one is missing, too."""
    for name, data in (SHARDS | SMALL).items():
        web.put_on_hub("owner/served", name, data, small=name in SMALL)
    vllm = tmp_path / "vllm"
    vllm.write_text("#!/bin/sh\nexit 1\n")
    vllm.chmod(0o700)
    launched = words_of([f"models.chat.launch.command=[{vllm}]"])

    def build():
        words = ["build", *SERVED, *launched, "--profile", profile]
        code = run(*words, "--out", tmp_path / "out")
        return code, capsys.readouterr().err

    line = "Fetch it with: pairwright fetch --served, and the same --profile and --set"
    code, err = build()
    assert code == 2
    assert f"{MISSING}: nothing of it is in " in err
    assert line in err
    assert fetch(*SERVED, "--served")[0] == 0
    (folder,) = (tmp_path / "hub/models--owner--served/snapshots").iterdir()
    (folder / "model-00002-of-00002.safetensors").unlink()
    code, err = build()
    assert code == 2
    assert f"{MISSING}: only a part of it is in {tmp_path / 'hub'}. {line}" in err
    assert not (tmp_path / "out").exists()
