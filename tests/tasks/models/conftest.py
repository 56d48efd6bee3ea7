"""Tiny checkpoints that no test may change, and an empty cache of the Hub."""

import pytest

from tests.fixtures.checkpoints import READING_CLIP, write_clip_folder, write_dinov2_folder


@pytest.fixture(scope="session")
def clip_folder(tmp_path_factory):
    return write_clip_folder(tmp_path_factory.mktemp("clip"))


@pytest.fixture(scope="session")
def reading_clip_folder(tmp_path_factory):
    return write_clip_folder(tmp_path_factory.mktemp("reading-clip"), architecture=READING_CLIP)


@pytest.fixture(scope="session")
def dinov2_folder(tmp_path_factory):
    return write_dinov2_folder(tmp_path_factory.mktemp("dinov2"))


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"
