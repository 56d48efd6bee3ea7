"""Where weights are looked for, and what a user is told when they are not there."""

import logging
import socket
import sys

import pytest

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.weights import (
    HubFiles,
    check_revision,
    find_local,
    find_on_hub,
    identify_files,
    loading,
    offline,
    require_packages,
)
from tests.fixtures.checkpoints import write_hub_cache

SAFE, PICKLE = "model.safetensors", "pytorch_model.bin"
COMMIT = "c" * 40


def files(**options):
    values = {"field": "embedding.x", "repository": "owner/model", "revision": "", "weights": (SAFE, PICKLE)}
    return HubFiles(**{**values, "beside": ("config.json",), **options})


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
        f"{cache}/models--owner--model",
        "config.json and model.safetensors or pytorch_model.bin",
        "hf download owner/model config.json model.safetensors --revision abc\n",
        "`pairwright fetch`",
        "--set embedding.download=true",
    ):
        assert named in str(caught.value)
    assert str(caught.value).startswith("embedding.x: owner/model ")


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize(
    ("there", "found"),
    [
        (("config.json", SAFE, PICKLE), SAFE),
        (("config.json", PICKLE), PICKLE),
        (("config.json",), None),
        ((SAFE, PICKLE), None),
    ],
)
@pytest.mark.parametrize("revision", ["", COMMIT])
def test_the_cache_gives_the_best_weights_if_all_else_is_there(cache, tmp_path, there, found, revision):
    snapshot = fill(cache, tmp_path / "files", *there)
    if found:
        assert find_on_hub(files(revision=revision), download=False) == snapshot / found
        assert find_on_hub(files(revision=revision), download=True) == snapshot / found
    else:
        with pytest.raises(ModelError, match="hf download"):
            find_on_hub(files(revision=revision), download=False)


def test_another_commit_in_the_cache_is_not_taken(cache, tmp_path):
    fill(cache, tmp_path / "files", "config.json", SAFE)
    with pytest.raises(ModelError, match="revision dddd"):
        find_on_hub(files(revision="d" * 40), download=False)


@pytest.mark.usefixtures("cache")
def test_a_download_that_fails_is_one_message(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match=r"owner/model (.|\n)*hf download owner/model"):
        find_on_hub(files(), download=True)


def test_local_files(tmp_path):
    weights, described = tmp_path / "a.pt", tmp_path / "config.json"
    weights.write_text("w")
    described.write_text("{}")
    assert find_local("f", weights) == [weights]
    assert find_local("f", tmp_path) == [weights]
    assert find_local("f", tmp_path, beside=("config.json",)) == [described, weights]


@pytest.mark.parametrize(
    ("place", "beside", "words"),
    [
        ("nowhere", (), "f: .*nowhere: .* file"),
        ("nowhere", ("config.json",), "f: .*nowhere: .* folder"),
        ("empty", ("config.json", "x.json"), "f: .*empty .*config.json .*x.json"),
        ("empty", (), "f: .*empty .*.safetensors, "),
    ],
)
def test_missing_local_files_are_named(tmp_path, place, beside, words):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=words):
        find_local("f", tmp_path / place, beside=beside)


def test_an_identity_changes_with_any_byte_and_not_with_the_folder(tmp_path):
    def identity(folder, name="a.bin", data=b"123"):
        path = tmp_path / folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return identify_files([path])

    first = identity("one")
    assert first.startswith("xxh3:")
    assert first == identity("two")
    assert len({first, identity("three", data=b"124"), identity("four", name="b.bin")}) == 3
    assert identity("one", data=b"1234") != first


def test_another_revision_is_refused(tmp_path):
    check_revision("f", "", "xxh3:1", tmp_path)
    check_revision("f", "xxh3:1", "xxh3:1", tmp_path)
    with pytest.raises(ModelError, match=r"f\.revision: .* xxh3:1, .*xxh3:2"):
        check_revision("f", "xxh3:2", "xxh3:1", tmp_path)


def test_missing_packages_are_named_with_what_installs_them():
    require_packages("f", "sys", "json")
    with pytest.raises(ModelError, match=r"f: .*nosuchpackage.*\[cpu,models\]"):
        require_packages("f", "json", "nosuchpackage")


def load_badly(path, error):
    from huggingface_hub import constants

    with loading("f", path):
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
    assert [record.getMessage() for record in caplog.records] == ["offline: True"] * 2 + ["heard again"]


def test_offline_restores_what_was_set():
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    with offline():
        assert constants.HF_HUB_OFFLINE
    assert before == constants.HF_HUB_OFFLINE


def test_looking_for_weights_loads_no_pytorch(tmp_path):
    import subprocess

    code = (
        "import sys\nfrom pairwright.schemas.config import *\nfrom pairwright.schemas.errors import ModelError\n"
        "from pairwright.tasks.mining.embed_images import pin_models\n"
        "try: pin_models(EmbeddingConfig(embedders=('clip', 'dinov2')))\n"
        "except ModelError as error: print(error)\n"
        "print([name for name in ('torch', 'open_clip', 'transformers') if name in sys.modules])"
    )
    env = {"HF_HUB_CACHE": str(tmp_path), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert "hf download timm/vit_large_patch14_clip_224.openai open_clip_model.safetensors --revision" in done.stdout
    assert done.stdout.endswith("[]\n")
