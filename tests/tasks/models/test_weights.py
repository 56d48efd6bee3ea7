"""Where weights are looked for, verified, and what a user is told when they are not there."""

import hashlib
import logging
import os
import random
import socket
import subprocess
import sys
from dataclasses import replace

import pytest
from huggingface_hub import constants

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models import weights
from pairwright.tasks.models.verify_weights import GIT, SHA256, verify_blob, verify_lookups
from pairwright.tasks.models.weights import (
    HubFiles,
    PublishedFile,
    check_revision,
    find_local,
    find_on_hub,
    find_published,
    weights_folder,
)
from tests.fixtures.checkpoints import write_hub_cache
from tests.fixtures.file_server import COMMIT, Fault, serving_files, use_as_hub

SAFE, PICKLE, CONFIG = "model.safetensors", "pytorch_model.bin", "config.json"
DATA = random.Random(1).randbytes(200_000)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def files(revision="", weights=(SAFE, PICKLE)):
    return HubFiles(
        field="embedding.x",
        repository="owner/model",
        revision=revision,
        weights=weights,
        extra=(CONFIG,),
    )


def refuse(find, *args, **options):
    """Return the message of weights that are not found."""
    with pytest.raises(ModelError) as refusal:
        find(*args, **options)
    return str(refusal.value)


@pytest.fixture
def no_network(monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: pytest.fail("goes to the network"))


@pytest.mark.usefixtures("no_network")
def test_missing_weights_name_the_place_and_the_command(hub_cache):
    message = refuse(find_on_hub, files(revision="abc"), download=False)
    assert message.startswith("embedding.x: owner/model ")
    assert f"looked in {hub_cache} for" in message
    assert "config.json and model.safetensors or pytorch_model.bin" in message
    assert "hf download owner/model config.json model.safetensors --revision abc\n" in message
    assert "`pairwright fetch`" in message
    assert "--set embedding.download=true" in message


@pytest.fixture
def fill(hub_cache, tmp_path):
    """Return what puts files into the Hub's cache."""

    def write(*names):
        (tmp_path / "files").mkdir()
        for name in names:
            (tmp_path / "files" / name).write_text(name)
        return write_hub_cache(hub_cache, "owner/model", tmp_path / "files")

    return write


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("download", [False, True])
@pytest.mark.parametrize("revision", ["", COMMIT])
@pytest.mark.parametrize(
    ("names", "best"), [((CONFIG, SAFE, PICKLE), SAFE), ((CONFIG, PICKLE), PICKLE)]
)
def test_the_cache_gives_the_best_weights(fill, names, best, revision, download):
    snapshot = fill(*names)
    assert find_on_hub(files(revision), download=download) == snapshot / best


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("revision", ["", COMMIT])
@pytest.mark.parametrize("names", [(CONFIG,), (SAFE, PICKLE)])
def test_an_incomplete_cache_gives_nothing(fill, names, revision):
    fill(*names)
    assert "hf download" in refuse(find_on_hub, files(revision), download=False)


@pytest.fixture
def web(tmp_path, monkeypatch):
    monkeypatch.setenv("PAIRWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(weights, "RETRIES", 0)
    with serving_files() as server:
        server.put_on_hub("owner/model", PICKLE, DATA)
        server.put_on_hub("owner/model", CONFIG, b"{}", small=True)
        use_as_hub(monkeypatch, server, tmp_path / "hub")
        yield server


@pytest.mark.parametrize("revision", ["", COMMIT])
def test_the_hubs_files_come_into_its_own_cache(web, tmp_path, revision):
    path = find_on_hub(files(revision), download=True)
    assert path == tmp_path / "hub" / "models--owner--model" / "snapshots" / COMMIT / PICKLE
    assert path.read_bytes() == DATA
    requests = len(web.asked)
    assert find_on_hub(files(revision), download=True) == path
    assert find_on_hub(files(revision), download=False) == path
    assert len(web.asked) == requests


def test_missing_weights_and_a_failed_download_name_the_files(web, monkeypatch):
    message = refuse(find_on_hub, files(weights=("a.safetensors", "a.bin")), download=True)
    assert message.startswith("embedding.x: owner/model ")
    assert "a.safetensors, a.bin" in message
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "hf download owner/model" in refuse(find_on_hub, files(), download=True)


def test_blobs_are_verified_by_their_names_and_fetched_again(web):
    def verify(*, fetch):
        return verify_lookups(lambda: find_on_hub(files(), download=True), fetch=fetch)[0]

    path = find_on_hub(files(), download=True)
    assert verify_blob(path) == (SHA256, "")
    assert verify_blob(path.parent / CONFIG) == (GIT, "")
    path.resolve().write_bytes(b"other")
    damage = f"is damaged: its SHA-256 is {sha256(b'other')}, not {sha256(DATA)}"
    assert verify_blob(path) == (SHA256, damage)
    assert [bool(file.fault) for file in verify(fetch=False)] == [False, True]
    assert [file.fault for file in verify(fetch=True)] == ["", ""]
    assert path.read_bytes() == DATA


@pytest.mark.parametrize("name", ["model.safetensors", "a" * 32, "g" * 40, "A" * 40])
def test_a_file_without_a_hash_for_its_name_cannot_be_verified(tmp_path, name):
    (tmp_path / name).write_bytes(DATA)
    assert verify_blob(tmp_path / name) == ("", "")


def test_what_is_looked_for_is_verified_up_to_what_is_missing(web):
    here = PublishedFile(field="f", name="a.pth", url=web.put("/a.pth", DATA))
    missing = PublishedFile(field="f", name="b.pth", url=f"{web.address}/b.pth")

    def find(*, download):
        find_published(here, download=download)
        find_on_hub(files(), download=download)
        find_published(missing, download=download)

    results, problem = verify_lookups(lambda: find(download=True), fetch=True)
    assert [(file.file, file.how, file.fault) for file in results] == [
        ("a.pth", "not verified: no hash of it is published", ""),
        (CONFIG, GIT, ""),
        (PICKLE, SHA256, ""),
    ]
    assert "b.pth could not be fetched" in problem
    requests = len(web.asked)
    assert verify_lookups(lambda: find(download=False), fetch=False)[0] == results
    assert len(web.asked) == requests


@pytest.fixture
def published(web):
    url = web.put("/a.pth", DATA)
    return PublishedFile(field="tagging.ram", name="a.pth", url=url, sha256=sha256(DATA))


def put(data):
    path = weights_folder() / "a.pth"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_a_missing_published_file_is_named_with_its_fetch_command(published, web):
    message = refuse(find_published, published, download=False)
    assert str(weights_folder() / "a.pth") in message
    assert published.url in message
    assert "`pairwright fetch`" in message
    assert "--set tagging.download=true" in message
    assert not web.asked
    assert not weights_folder().exists()


def test_a_published_file_is_fetched_verified_and_hashed_once(published, web, monkeypatch):
    path = find_published(published, download=True)
    assert (path, path.read_bytes()) == (weights_folder() / "a.pth", DATA)
    assert find_published(published, download=False) == path
    assert len(web.asked) == 1
    monkeypatch.setattr(weights.hashlib, "file_digest", lambda *_: pytest.fail("hashes it"))
    assert find_published(published, download=False) == path


@pytest.mark.usefixtures("web")
def test_of_another_file_than_the_published_one_nothing_is_left(published):
    message = refuse(find_published, replace(published, sha256="0" * 64), download=True)
    assert message.startswith(f"tagging.ram: a.pth could not be fetched from {published.url}: ")
    assert sha256(DATA) in message
    assert "0" * 64 in message
    assert list(weights_folder().iterdir()) == []


def test_a_file_that_was_put_there_must_be_the_published_one(published):
    path = put(DATA)
    assert find_published(published, download=False) == path
    put(DATA[:1000])
    message = refuse(find_published, published, download=False)
    assert sha256(DATA[:1000]) in message
    assert sha256(DATA) in message
    assert find_published(published, download=True).read_bytes() == DATA


def test_a_lost_connection_is_tried_again(published, web, monkeypatch):
    web.next_answers = [Fault(cut=50_000), Fault(status=503)]
    assert "could not be fetched" in refuse(find_published, published, download=True)
    assert list(weights_folder().iterdir()) == []
    monkeypatch.setattr(weights, "RETRIES", 1)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    assert find_published(published, download=True).read_bytes() == DATA


def test_local_files(tmp_path):
    file, described = tmp_path / "a.pt", tmp_path / "config.json"
    described.write_text("{}")
    with pytest.raises(ModelError, match=r"f: .*\.pt, .*\.safetensors"):
        find_local("f", tmp_path)
    with pytest.raises(ModelError, match=r"f: .*a\.pt: no such file"):
        find_local("f", file)
    file.write_text("w")
    assert find_local("f", file) == [file]
    assert find_local("f", tmp_path) == [file, described]


def test_an_identity_changes_with_any_byte_and_not_with_the_folder(tmp_path):
    def identify(folder, name="a.bin", data=b"123"):
        path = tmp_path / folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return weights.identify_files([path])

    first = identify("1")
    assert first.startswith("xxh3:")
    assert first == identify("2")
    assert len({first, identify("3", data=b"124"), identify("4", name="b.bin")}) == 3
    assert identify("1", data=b"1234") != first


def test_another_revision_and_missing_packages_are_refused(tmp_path):
    check_revision("f", "", "xxh3:1", tmp_path)
    check_revision("f", "xxh3:1", "xxh3:1", tmp_path)
    with pytest.raises(ModelError, match=r"f\.revision: .* xxh3:1, .*xxh3:2"):
        check_revision("f", "xxh3:2", "xxh3:1", tmp_path)
    weights.require_modules("f", "sys", "json")
    with pytest.raises(ModelError, match=r"f: .*nosuchpackage.*\[cpu,models\]"):
        weights.require_modules("f", "json", "nosuchpackage")


@pytest.mark.parametrize(
    ("error", "message"),
    [(KeyError("head"), r"f: .*KeyError: 'head'"), (ModelError("as it was"), r"^as it was$")],
)
def test_loading_is_quiet_offline_and_gives_one_kind_of_error(tmp_path, caplog, error, message):
    def load():
        with weights.loading("f", tmp_path):
            logging.info("not heard")
            logging.warning("offline: %s", constants.HF_HUB_OFFLINE)
            raise error

    caplog.set_level(logging.INFO)
    with pytest.raises(ModelError, match=message):
        load()
    logging.info("heard again")
    assert caplog.messages == ["offline: True", "heard again"]


LOOK = """
import sys
from pairwright.schemas.config import EmbeddingConfig
from pairwright.schemas.errors import ModelError
from pairwright.tasks.mining.embed_images import pin_models
try:
    pin_models(EmbeddingConfig(embedders=("clip", "dinov2")))
except ModelError as error:
    print(error)
print([name for name in ("torch", "open_clip", "transformers") if name in sys.modules])
"""


def test_looking_for_weights_loads_no_pytorch(tmp_path):
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path), "PATH": ""}
    output = subprocess.check_output([sys.executable, "-c", LOOK], text=True, env=environment)
    model = "timm/vit_large_patch14_clip_224.openai open_clip_model.safetensors --revision"
    assert f"hf download {model}" in output
    assert output.endswith("[]\n")
