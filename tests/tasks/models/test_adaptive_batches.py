"""The device of a process; batches are halved where memory ends, and give the same vectors."""

import logging

import numpy as np
import pytest
import torch

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models import devices
from pairwright.tasks.models.adaptive_batches import AdaptiveBatches, is_out_of_memory
from pairwright.tasks.store.pool import PLACE

IMAGES = [np.full(2, n) for n in range(300)]


class Machine:
    """Encode so many images at once."""

    def __init__(self, fits, error):
        self.sizes, self.fits, self.error = [], fits, error

    def encode(self, images):
        if len(images) > self.fits:
            raise self.error
        self.sizes.append(len(images))
        return np.array(images, dtype=np.float32)


CUDA = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")


@pytest.mark.parametrize(
    "error",
    [
        CUDA,
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: not enough memory: you"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 400 bytes"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"),
        RuntimeError("GET was unable to find an engine to execute this computation"),
        MemoryError(),
    ],
    ids=str,
)
def test_out_of_memory_halves_the_batch_for_good(error, caplog):
    machine, batches = Machine(11, error), AdaptiveBatches(40)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            vectors = batches.each(machine.encode, IMAGES)
            np.testing.assert_array_equal(vectors, np.array(IMAGES, dtype=np.float32))
    assert set(machine.sizes) == {10}
    assert caplog.messages == [
        "out of memory with 40 images at once; going on with 20",
        "out of memory with 20 images at once; going on with 10",
    ]


def test_memory_for_not_even_one_image_is_an_error():
    with pytest.raises(ModelError, match="single image"):
        AdaptiveBatches().each(Machine(0, CUDA).encode, IMAGES[:3])


def test_a_refused_allocation_is_told_from_other_errors():
    error = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    assert not is_out_of_memory(error)
    with pytest.raises(RuntimeError, match="mat1"):
        AdaptiveBatches().each(Machine(0, error).encode, IMAGES[:3])
    with pytest.raises(RuntimeError) as refusal:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(refusal.value)


def test_without_a_driver_nothing_is_asked(monkeypatch, tmp_path):
    monkeypatch.setattr(devices, "DRIVERS", (str(tmp_path / "none"),))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: pytest.fail("asked"))
    assert devices.count_gpus() == 0
    assert devices.choose_device() == torch.device("cpu")


@pytest.mark.parametrize(("place", "device"), [("0", 0), ("1", 1), ("2", 0)])
def test_workers_take_turns(monkeypatch, tmp_path, place, device):
    """A machine with GPUs is not to be had here: PyTorch's answers are set."""
    monkeypatch.setattr(devices, "DRIVERS", (str(tmp_path),))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv(PLACE, place)
    assert devices.count_gpus() == 2
    assert devices.choose_device() == torch.device("cuda", device)
