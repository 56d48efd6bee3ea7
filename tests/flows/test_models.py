"""Builds with encoders: weights are asked for before anything is done, and written down; real
workers, real loaders."""

import socket
from pathlib import Path

import pytest
from huggingface_hub import constants

from tests.fixtures.checkpoints import write_dinov2_folder
from tests.fixtures.command import run, words_of
from tests.fixtures.photographs import write_photographs


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photographs") / "in"
    write_photographs(folder, variants=2)
    for path in sorted(folder.iterdir())[24:]:
        path.unlink()
    return folder


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have an empty cache and no network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))  # for workers
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *words, **_: pytest.fail(f"goes to the network: {words}")
    )


@pytest.mark.parametrize(
    ("profile", "command"),
    [
        (
            "laptop",
            (
                "hf download timm/vit_base_patch32_clip_224.openai open_clip_model.safetensors "
                "--revision a6f597a3"
            ),
        ),
        (
            "gpu",
            (
                "hf download timm/vit_large_patch14_clip_224.openai open_clip_model.safetensors "
                "--revision 18d05354"
            ),
        ),
    ],
)
def test_missing_weights_end_with_two_before_anything_is_done(
    photographs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    profile: str,
    command: str,
) -> None:
    out = tmp_path / "out"
    assert run("build", photographs, "--profile", profile, "--out", out, "--until", "mining") == 2
    assert command in capsys.readouterr().err
    assert not out.exists()
    # What needs no weights is not held up by them.
    assert run("build", photographs, "--profile", profile, "--out", out, "--until", "sources") == 0


@pytest.mark.parametrize(
    ("profile", "words"),
    [("laptop", "models.chat.endpoint: "), ("gpu", "models.chat.launch.command: 'no-such-vllm'")],
)
def test_a_missing_server_ends_with_two_before_anything_is_done(
    photographs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], profile: str, words: str
) -> None:
    settings = ["--set", "models.chat.launch.command=no-such-vllm"]
    assert (
        run("build", photographs, "--profile", profile, *settings, "--out", tmp_path / "out") == 2
    )
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_weights_that_changed_are_not_mixed_with_the_old_ones(
    photographs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_dinov2_folder(tmp_path / "dinov2")
    fields = (
        "embedding.embedders=[dinov2]",
        f"embedding.dinov2.model={tmp_path / 'dinov2'}",
        "mining.weights=[1]",
    )
    settings = words_of(
        [*fields, "rejections.enabled=false", "grounding.enabled=false", "run.workers=1"]
    )
    words = [
        "build",
        photographs,
        "--profile",
        "laptop",
        "--out",
        tmp_path / "out",
        "--until",
        "embeddings",
        *settings,
    ]
    assert run(*words) == 0
    write_dinov2_folder(tmp_path / "dinov2", seed=1)
    capsys.readouterr()
    assert run("status", tmp_path / "out") == 0
    assert run("resume", tmp_path / "out") == 2
    assert ".revision: " in capsys.readouterr().err
    assert run(*words) == 0
    assert len(list((tmp_path / "out" / "tables" / "embeddings").iterdir())) == 2
