"""Where weights are looked for, and what a user is told when they are not there."""

import hashlib
import logging
import random
import socket
import sys
from dataclasses import replace

import pytest

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models import weights
from pairwright.tasks.models.weights import (
    check_revision,
    find_local,
    find_on_hub,
    find_published,
    weights_folder,
)
from tests.fixtures.checkpoints import write_hub_cache
from tests.fixtures.file_server import COMMIT, Fault, serving_files, use_as_hub

SAFE, PICKLE, CONFIG = "model.safetensors", "pytorch_model.bin", "config.json"
DATA, OTHER = (random.Random(seed).randbytes(200_000) for seed in (1, 2))
SHA = hashlib.sha256(DATA).hexdigest()


def files(**options):
    values = {
        "field": "embedding.x",
        "repository": "owner/model",
        "revision": "",
        "weights": (SAFE, PICKLE),
    }
    return weights.HubFiles(**{**values, "extra": ("config.json",), **options})


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*args):
        raise AssertionError(f"goes to the network: {args}")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def fill(cache, folder, *names):
    folder.mkdir()
    for name in names:
        (folder / name).write_text(name)
    return write_hub_cache(cache, "owner/model", folder)


@pytest.mark.usefixtures("no_network")
def test_missing_weights_name_the_place_and_the_command(cache):
    with pytest.raises(ModelError) as caught:
        find_on_hub(files(revision="abc"), download=False)
    for named in (
        f"looked in {cache} for",
        "config.json and model.safetensors or pytorch_model.bin",
        "hf download owner/model config.json model.safetensors --revision abc\n",
        "`pairwright fetch`",
        "--set embedding.download=true",
    ):
        assert named in str(caught.value)
    assert str(caught.value).startswith("embedding.x: owner/model ")


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize(
    "there", [(CONFIG, SAFE, PICKLE), (CONFIG, PICKLE), (CONFIG,), (SAFE, PICKLE)]
)
@pytest.mark.parametrize("revision", ["", COMMIT])
def test_the_cache_gives_the_best_weights_if_all_else_is_there(cache, tmp_path, there, revision):
    snapshot = fill(cache, tmp_path / "files", *there)
    if CONFIG in there[:-1]:
        for download in (False, True):
            assert find_on_hub(files(revision=revision), download=download) == snapshot / there[1]
    else:
        with pytest.raises(ModelError, match="hf download"):
            find_on_hub(files(revision=revision), download=False)


@pytest.fixture
def web(tmp_path, monkeypatch):
    monkeypatch.setenv("PAIRWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(weights, "RETRIES", 0)
    with serving_files() as running:
        running.put_on_hub("owner/model", PICKLE, DATA)
        running.put_on_hub("owner/model", "config.json", b"{}", small=True)
        use_as_hub(monkeypatch, running, tmp_path / "hub")
        yield running


@pytest.mark.parametrize("revision", ["", COMMIT])
def test_the_hubs_files_come_into_its_own_cache(web, tmp_path, revision):
    wanted = files(revision=revision)
    found = find_on_hub(wanted, download=True)
    assert found == tmp_path / "hub" / "models--owner--model" / "snapshots" / COMMIT / PICKLE
    assert found.read_bytes() == DATA
    asked = len(web.asked)
    assert find_on_hub(wanted, download=True) == find_on_hub(wanted, download=False) == found
    assert len(web.asked) == asked


def test_missing_weights_and_failed_download_share_a_message(web, monkeypatch):
    with pytest.raises(ModelError, match=r"embedding.x: owner/model .*a\.safetensors, a\.bin"):
        find_on_hub(files(weights=("a.safetensors", "a.bin")), download=True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match=r"owner/model (.|\n)*hf download owner/model"):
        find_on_hub(files(), download=True)


@pytest.fixture
def wanted(web):
    return weights.PublishedFile(
        field="tagging.ram", name="a.pth", url=web.put("/a.pth", DATA), sha256=SHA
    )


def refused(file, *, download=False):
    with pytest.raises(ModelError) as caught:
        find_published(file, download=download)
    return str(caught.value)


def put(data):
    weights_folder().mkdir(parents=True, exist_ok=True)
    path = weights_folder() / "a.pth"
    path.write_bytes(data)
    return path


def test_missing_published_file_is_named_with_its_fetch_command(wanted, web):
    words = refused(wanted)
    for named in (
        str(weights_folder() / "a.pth"),
        wanted.url,
        "`pairwright fetch`",
        "--set tagging.download=true",
    ):
        assert named in words
    assert not web.asked
    assert not weights_folder().exists()


def test_a_published_file_is_fetched_verified_and_hashed_once(wanted, web, monkeypatch):
    path = find_published(wanted, download=True)
    assert (path, path.read_bytes()) == (weights_folder() / "a.pth", DATA)
    assert find_published(wanted, download=False) == path
    assert len(web.asked) == 1
    monkeypatch.setattr(weights.hashlib, "file_digest", lambda *_: pytest.fail("hashes it"))
    assert find_published(wanted, download=False) == path


def test_only_the_published_file_is_taken_and_of_another_nothing_is_left(wanted, web):
    words = refused(replace(wanted, sha256="0" * 64), download=True)
    assert words.startswith(f"tagging.ram: a.pth could not be fetched from {wanted.url}: ")
    assert SHA in words
    assert "0" * 64 in words
    assert list(weights_folder().iterdir()) == []
    path = put(DATA)
    assert find_published(wanted, download=False) == path
    put(DATA[:1000])
    words = refused(wanted)
    assert hashlib.sha256(DATA[:1000]).hexdigest() in words
    assert SHA in words
    assert find_published(wanted, download=True).read_bytes() == DATA


def test_a_lost_connection_is_tried_again(wanted, web, monkeypatch):
    web.next_answers = [Fault(cut=50_000), Fault(status=503)]
    assert "could not be fetched" in refused(wanted, download=True)
    assert list(weights_folder().iterdir()) == []
    monkeypatch.setattr(weights, "RETRIES", 1)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    assert find_published(wanted, download=True).read_bytes() == DATA


def test_local_files(tmp_path):
    weights, described = tmp_path / "a.pt", tmp_path / "config.json"
    described.write_text("{}")
    with pytest.raises(ModelError, match=r"f: .*\.pt, .*\.safetensors"):
        find_local("f", tmp_path)
    with pytest.raises(ModelError, match=r"f: .*a\.pt: no such file or folder"):
        find_local("f", weights)
    weights.write_text("w")
    assert find_local("f", weights) == [weights]
    assert find_local("f", tmp_path) == [weights, described]


def test_an_identity_changes_with_any_byte_and_not_with_the_folder(tmp_path):
    def identity(folder, name="a.bin", data=b"123"):
        path = tmp_path / folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return weights.identify_files([path])

    first = identity("one")
    assert first.startswith("xxh3:")
    assert first == identity("two")
    assert len({first, identity("three", data=b"124"), identity("four", name="b.bin")}) == 3
    assert identity("one", data=b"1234") != first


def test_another_revision_and_missing_packages_are_refused(tmp_path):
    check_revision("f", "", "xxh3:1", tmp_path)
    check_revision("f", "xxh3:1", "xxh3:1", tmp_path)
    with pytest.raises(ModelError, match=r"f\.revision: .* xxh3:1, .*xxh3:2"):
        check_revision("f", "xxh3:2", "xxh3:1", tmp_path)
    weights.require_packages("f", "sys", "json")
    with pytest.raises(ModelError, match=r"f: .*nosuchpackage.*\[cpu,models\]"):
        weights.require_packages("f", "json", "nosuchpackage")


def load_badly(path, error):
    from huggingface_hub import constants

    with weights.loading("f", path):
        logging.info("offline: %s", constants.HF_HUB_OFFLINE)
        logging.warning("offline: %s", constants.HF_HUB_OFFLINE)
        raise error


def test_loading_is_quiet_offline_and_gives_one_kind_of_error(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    with pytest.raises(ModelError, match=r"f: .*KeyError: 'head'"):
        load_badly(tmp_path, KeyError("head"))
    with pytest.raises(ModelError, match=r"^as it was$"):
        load_badly(tmp_path, ModelError("as it was"))
    logging.info("heard again")
    assert [record.getMessage() for record in caplog.records] == ["offline: True"] * 2 + [
        "heard again"
    ]


def test_looking_for_weights_loads_no_pytorch(tmp_path):
    import subprocess

    code = (
        "import sys\nfrom pairwright.schemas.config import *\nfrom pairwright.schemas.errors "
        "import ModelError\n"
        "from pairwright.tasks.mining.embed_images import pin_models\n"
        "try: pin_models(EmbeddingConfig(embedders=('clip', 'dinov2')))\n"
        "except ModelError as error: print(error)\n"
        "print([name for name in ('torch', 'open_clip', 'transformers') if name in sys.modules])"
    )
    env = {"HF_HUB_CACHE": str(tmp_path), "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    assert (
        "hf download timm/vit_large_patch14_clip_224.openai open_clip_model.safetensors --revision"
        in done.stdout
    )
    assert done.stdout.endswith("[]\n")
