"""The device of a process; batches are halved where memory ends, and the vectors are those of one
batch."""

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

    def __init__(self, *, fits=10**6, error=None):
        self.sizes, self.fits = [], fits
        self.error = error or torch.OutOfMemoryError("CUDA out of memory")

    def encode(self, images):
        if len(images) > self.fits:
            raise self.error
        self.sizes.append(len(images))
        return np.array(images, dtype=np.float32)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: not enough memory: you "
            "tried ..."
        ),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 400 bytes"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"),
        RuntimeError("GET was unable to find an engine to execute this computation"),
        MemoryError(),
    ],
)
def test_out_of_memory_halves_the_batch_for_good(error, caplog):
    machine, batches = Machine(fits=11, error=error), AdaptiveBatches(40)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            np.testing.assert_array_equal(
                batches.each(machine.encode, IMAGES), np.array(IMAGES, dtype=np.float32)
            )
    assert set(machine.sizes) == {10}
    assert [record.getMessage() for record in caplog.records] == [
        "out of memory with 40 images at once; going on with 20",
        "out of memory with 20 images at once; going on with 10",
    ]


def test_memory_for_not_even_one_image_is_an_error():
    with pytest.raises(ModelError, match="single image"):
        AdaptiveBatches().each(Machine(fits=0).encode, IMAGES[:3])


def test_refused_allocation_is_told_from_other_errors():
    error = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    assert not is_out_of_memory(error)
    with pytest.raises(RuntimeError, match="mat1"):
        AdaptiveBatches().each(Machine(fits=0, error=error).encode, IMAGES[:3])
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


def test_without_a_driver_nothing_is_asked(monkeypatch, tmp_path):
    monkeypatch.setattr(devices, "DRIVERS", (str(tmp_path / "none"),))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: pytest.fail("asked"))
    assert devices.count_gpus() == 0
    assert devices.choose_device() == torch.device("cpu")


def test_workers_take_turns(monkeypatch, tmp_path):
    # A machine with GPUs is not to be had here: PyTorch's answers are set.
    monkeypatch.setattr(devices, "DRIVERS", (str(tmp_path),))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert devices.count_gpus() == 2
    chosen = []
    for place in ("0", "1", "2"):
        monkeypatch.setenv(PLACE, place)
        chosen.append(devices.choose_device())
    assert chosen == [torch.device("cuda", 0), torch.device("cuda", 1), torch.device("cuda", 0)]
