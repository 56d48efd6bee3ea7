import subprocess
from types import SimpleNamespace

import pytest

from pairwright.tasks.sources.scene import variant


@pytest.fixture(autouse=True)
def _forget():
    variant.choose_variant.cache_clear()
    yield
    variant.choose_variant.cache_clear()


def test_without_a_device_nothing_is_started(tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a process was started"))
    assert variant.choose_variant((tmp_path / "none",)) == "scalar_rgb"


@pytest.mark.parametrize(("code", "name"), [(0, "cuda_ad_rgb"), (1, "scalar_rgb"), (-6, "scalar_rgb")])
def test_a_device_is_tried_in_a_child(tmp_path, monkeypatch, code, name):
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=code))
    assert variant.choose_variant((tmp_path,)) == name


def test_a_device_that_hangs_is_given_up(tmp_path, monkeypatch):
    def hang(*_, **__):
        raise subprocess.TimeoutExpired("probe", 1)

    monkeypatch.setattr(subprocess, "run", hang)
    assert variant.choose_variant((tmp_path,)) == "scalar_rgb"


def test_the_probe_fails_where_there_is_no_gpu(tmp_path):
    if any(device.exists() for device in variant.DEVICES):
        pytest.skip("this machine has a GPU")
    assert variant.choose_variant((tmp_path,)) == "scalar_rgb"
