"""Files of the Hub from a stand-in of its HTTP interface, through its own client and its own cache."""

import hashlib
import os
import random
import re
import subprocess
import sys
import threading
import time

import pytest
from huggingface_hub import hf_hub_download, scan_cache_dir

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.fetching import fetch_file
from pairwright.tasks.models.fetching.fetch_hub import GIT, SHA256, ask_hub, hash_blob, hash_kind, verify_blob
from pairwright.tasks.models.weights import HubFiles, find_cached, find_on_hub
from tests.fixtures.file_server import COMMIT, Fault, git_hash, serving_files, use_as_hub

DATA = random.Random(1).randbytes(200_000)
CONFIG = b'{"model_type": "dinov2"}'
FILES = HubFiles(
    field="detection",
    repository="owner/model",
    revision="",
    weights=("model.safetensors", "pytorch_model.bin"),
    beside=("config.json",),
)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    with serving_files() as web:
        web.put_on_hub("owner/model", "pytorch_model.bin", DATA)
        web.put_on_hub("owner/model", "config.json", CONFIG, small=True)
        use_as_hub(monkeypatch, web, tmp_path / "hub")
        monkeypatch.setattr(fetch_file, "LIMITS", fetch_file.Limits(pause_s=0.001))
        yield web


@pytest.fixture
def blobs(tmp_path):
    return tmp_path / "hub" / "models--owner--model" / "blobs"


def test_files_come_into_the_hubs_own_cache(hub, tmp_path, blobs):
    weights = find_on_hub(FILES, download=True)
    assert weights == tmp_path / "hub" / "models--owner--model" / "snapshots" / COMMIT / "pytorch_model.bin"
    assert weights.read_bytes() == DATA
    assert (weights.parent / "config.json").read_bytes() == CONFIG
    assert weights.resolve() == blobs / hashlib.sha256(DATA).hexdigest()
    assert {file.name for file in blobs.iterdir()} == {hashlib.sha256(DATA).hexdigest(), git_hash(CONFIG)}
    (repository,) = scan_cache_dir(tmp_path / "hub").repos
    assert (repository.repo_id, repository.nb_files) == ("owner/model", 2)
    asked = len(hub.asked)
    assert find_on_hub(FILES, download=True) == find_on_hub(FILES, download=False) == weights
    assert hf_hub_download("owner/model", "config.json", local_files_only=True) == str(weights.parent / "config.json")
    assert len(hub.asked) == asked


@pytest.mark.parametrize("revision", [COMMIT, "main"])
def test_a_revision_is_taken_at_its_word(hub, revision):
    files = HubFiles(field="f", repository="owner/model", revision=revision, weights=("pytorch_model.bin",))
    assert find_on_hub(files, download=True).parent.name == COMMIT
    assert find_cached(files)


def test_what_breaks_off_is_taken_up(hub):
    hub.next_answers = [Fault(), Fault(), Fault(cut=80_000)]  # the small file, the large one's redirect, and itself
    assert find_on_hub(FILES, download=True).read_bytes() == DATA
    assert hub.gets[-1][1] == "bytes=80000-"


def test_a_killed_download_is_taken_up(hub, blobs):
    stall = threading.Event()
    hub.next_answers = [Fault(), Fault(), Fault(cut=100_000, stall=stall)]
    code = f"from pairwright.tasks.models.weights import *; find_on_hub({FILES!r}, download=True)"
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) as process:
        part = blobs / f"{hashlib.sha256(DATA).hexdigest()}.incomplete"
        until = time.monotonic() + 120
        while not (part.exists() and part.stat().st_size > 65_536):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.01)
        process.kill()
    stall.set()
    assert find_cached(FILES) is None
    there = part.stat().st_size
    assert find_on_hub(FILES, download=True).read_bytes() == DATA
    assert hub.gets[-1][1] == f"bytes={there}-"


def test_a_wrong_hash_is_told_and_nothing_is_left(hub, blobs):
    wrong = DATA[:-1] + b"?"
    hub.next_answers = [Fault(), Fault(), Fault(content=wrong)]
    with pytest.raises(ModelError) as caught:
        find_on_hub(FILES, download=True)
    right, found = hashlib.sha256(DATA).hexdigest(), hashlib.sha256(wrong).hexdigest()
    assert re.search(f"SHA-256 .*{found}.* {right}", str(caught.value))
    assert {file.name for file in blobs.iterdir()} == {git_hash(CONFIG)}


def test_a_missing_repository_or_file_is_one_message(hub):
    files = HubFiles(field="f", repository="owner/model", revision="", weights=("a.safetensors", "a.bin"))
    with pytest.raises(ModelError, match=r"f: owner/model .*a\.safetensors, a\.bin"):
        find_on_hub(files, download=True)
    assert not [path for path, _ in hub.gets if "/a." in path]


def test_the_token_is_sent_to_the_hub_and_not_to_where_it_redirects(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with serving_files() as elsewhere:
        elsewhere.put("/blob", DATA)
        hub.elsewhere = f"{elsewhere.address}/blob"
        assert find_on_hub(FILES, download=True).read_bytes() == DATA
        assert {headers.get("Authorization", headers.get("authorization")) for _, _, headers in hub.asked} == {
            "Bearer hf_secret"
        }
        assert not [
            headers for _, _, headers in elsewhere.asked if "authorization" in {name.lower() for name in headers}
        ]


def test_the_hub_tells_hash_and_size(hub):
    remote = ask_hub("owner/model", "pytorch_model.bin", "")
    assert (remote.hash, remote.size) == (hashlib.sha256(DATA).hexdigest(), len(DATA))
    remote = ask_hub("owner/model", "config.json", COMMIT)
    assert (remote.hash, remote.size) == (git_hash(CONFIG), len(CONFIG))


def test_blobs_are_verified_by_their_names(hub):
    weights = find_on_hub(FILES, download=True)
    assert verify_blob(weights) == (SHA256, "")
    assert verify_blob(weights.parent / "config.json") == (GIT, "")
    weights.resolve().write_bytes(b"other")
    found, right = hashlib.sha256(b"other").hexdigest(), hashlib.sha256(DATA).hexdigest()
    assert verify_blob(weights) == (SHA256, f"its SHA-256 is {found}, not {right}")


def test_a_file_without_a_hash_for_its_name_cannot_be_verified(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(DATA)
    assert verify_blob(path) == ("", "")
    assert [hash_kind(name) for name in ("a" * 64, "0" * 40, "g" * 40, "a" * 32, "A" * 40)] == [SHA256, GIT, "", "", ""]


def test_gits_hash_is_gits(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(CONFIG)
    done = subprocess.run(["git", "hash-object", str(path)], capture_output=True, text=True, check=True)
    assert hash_blob(path, GIT) == done.stdout.strip()


def test_of_two_at_once_one_fetches(hub):
    code = f"from pairwright.tasks.models.weights import *; print(find_on_hub({FILES!r}, download=True))"
    words = [sys.executable, "-c", code]
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) for _ in range(2)]
    ends = {process.communicate()[0] for process in running}
    assert len(ends) == 1
    assert len([path for path, _ in hub.gets if "from=elsewhere" in path]) == 1
