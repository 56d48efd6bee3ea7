"""Weights that a stage looks for are verified by their hashes."""

import hashlib
import random

import pytest

from pairwright.tasks.models.verify_weights import GIT, SHA256, verify_blob, verify_lookups
from pairwright.tasks.models.weights import HubFiles, PublishedFile, find_on_hub, find_published
from tests.fixtures.file_server import serving_files, use_as_hub

DATA = random.Random(1).randbytes(200_000)
CONFIG = b'{"model_type": "dinov2"}'
NAMES = {"weights": ("model.safetensors", "pytorch_model.bin"), "extra": ("config.json",)}
FILES = HubFiles(field="detection", repository="owner/model", revision="", **NAMES)


@pytest.fixture
def web(tmp_path, monkeypatch):
    monkeypatch.setenv("PAIRWRIGHT_CACHE", str(tmp_path / "cache"))
    with serving_files() as running:
        running.put_on_hub("owner/model", "pytorch_model.bin", DATA)
        running.put_on_hub("owner/model", "config.json", CONFIG, small=True)
        use_as_hub(monkeypatch, running, tmp_path / "hub")
        yield running


def test_blobs_are_verified_by_their_names(web):
    weights = find_on_hub(FILES, download=True)
    assert verify_blob(weights) == (SHA256, "")
    assert verify_blob(weights.parent / "config.json") == (GIT, "")
    weights.resolve().write_bytes(b"other")
    found, right = hashlib.sha256(b"other").hexdigest(), hashlib.sha256(DATA).hexdigest()
    assert verify_blob(weights) == (SHA256, f"is damaged: its SHA-256 is {found}, not {right}")
    files, _ = verify_lookups(lambda: find_on_hub(FILES, download=True), fetch=False)
    assert [bool(file.fault) for file in files] == [False, True]
    files, _ = verify_lookups(lambda: find_on_hub(FILES, download=True), fetch=True)
    assert not any(file.fault for file in files)
    assert weights.read_bytes() == DATA


def test_a_file_without_a_hash_for_its_name_cannot_be_verified(tmp_path):
    for name in ("model.safetensors", "a" * 32, "g" * 40, "A" * 40):
        (tmp_path / name).write_bytes(DATA)
        assert verify_blob(tmp_path / name) == ("", "")


def test_what_is_looked_for_is_verified_up_to_what_is_missing(web):
    here = PublishedFile(field="f", name="a.pth", url=web.put("/a.pth", DATA))
    missing = PublishedFile(field="f", name="b.pth", url=f"{web.address}/b.pth")

    def find(download):
        find_published(here, download=download)
        find_on_hub(FILES, download=download)
        find_published(missing, download=download)

    files, problem = verify_lookups(lambda: find(download=True), fetch=True)
    assert [(file.file, file.how, file.fault) for file in files] == [
        ("a.pth", "not verified: no hash of it is published", ""),
        ("config.json", GIT, ""),
        ("pytorch_model.bin", SHA256, ""),
    ]
    assert "b.pth could not be fetched" in problem
    asked = len(web.asked)
    assert verify_lookups(lambda: find(download=False), fetch=False)[0] == files
    assert len(web.asked) == asked
