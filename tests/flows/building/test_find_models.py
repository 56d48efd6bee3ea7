"""Builds with encoders: weights are asked for before anything is done, and written down."""

import socket

import pytest

from tests.fixtures.checkpoints import write_dinov2_folder
from tests.fixtures.command import run, words_of
from tests.fixtures.pictures import write_pictures


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures") / "in"
    return write_pictures(folder, [f"{number:02d}" for number in range(12)])


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    """Have an empty cache, here and in workers, and no network."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("goes to the network"))


@pytest.mark.parametrize(
    ("profile", "model", "revision"),
    [("laptop", "vit_base_patch32", "a6f597a3"), ("gpu", "vit_large_patch14", "18d05354")],
)
def test_missing_weights_end_with_two_before_anything_is_done(
    pictures, tmp_path, capsys, profile, model, revision
):
    words = ["build", pictures, "--profile", profile, "--out", tmp_path / "out", "--until"]
    assert run(*words, "mining") == 2
    files = f"timm/{model}_clip_224.openai open_clip_model.safetensors"
    assert f"hf download {files} --revision {revision}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert run(*words, "sources") == 0, "needs no weights"


@pytest.mark.parametrize(
    ("profile", "setting"),
    [("laptop", "models.chat.endpoint: "), ("gpu", "models.chat.launch.command: 'no-such-vllm'")],
)
def test_a_missing_server_ends_with_two_before_anything_is_done(
    pictures, tmp_path, capsys, profile, setting
):
    settings = words_of(["models.chat.launch.command=no-such-vllm"])
    words = ["build", pictures, "--profile", profile, *settings, "--out", tmp_path / "out"]
    assert run(*words) == 2
    assert setting in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_weights_that_changed_are_not_mixed_with_the_old_ones(pictures, tmp_path, capsys):
    out, model = tmp_path / "out", write_dinov2_folder(tmp_path / "dinov2")
    settings = [
        *("embedding.embedders=[dinov2]", f"embedding.dinov2.model={model}", "mining.weights=[1]"),
        *("rejections.enabled=false", "grounding.enabled=false", "run.workers=1"),
    ]
    how = ["--profile", "laptop", "--out", out, "--until", "embeddings"]
    words = ["build", pictures, *how, *words_of(settings)]
    assert run(*words) == 0
    write_dinov2_folder(model, seed=1)
    capsys.readouterr()
    assert run("status", out) == 0
    assert run("resume", out) == 2
    assert ".revision: " in capsys.readouterr().err
    assert run(*words) == 0
    assert len(list((out / "tables/embeddings").iterdir())) == 2
