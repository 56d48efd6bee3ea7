"""What a launcher asks for and cannot have."""

import pytest

from schemas.errors import ConfigError
from tasks.training.check_launcher import check_launcher


def test_nothing_is_asked_for() -> None:
    check_launcher()


def test_the_first_fsdp_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what ``accelerate launch --use_fsdp`` gives where no version is named."""
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    for version in ("", "1"):
        if version:
            monkeypatch.setenv("FSDP_VERSION", version)
        with pytest.raises(ConfigError, match=r"fsdp_version is 1; give --fsdp_version 2"):
            check_launcher()


@pytest.mark.parametrize("name", ["FSDP", "DEEPSPEED"])
def test_weights_are_not_spread_over_cpus(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    monkeypatch.setenv(f"ACCELERATE_USE_{name}", "true")
    monkeypatch.setenv("FSDP_VERSION", "2")
    with pytest.raises(ConfigError, match=rf"use_{name.lower()}: weights are spread over several GPUs"):
        check_launcher()
