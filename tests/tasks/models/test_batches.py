"""The size of batches: found from times, halved where memory ends; the vectors are those of one batch."""

import logging

import numpy as np
import pytest
import torch

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.batches import MOST, Batches, is_out_of_memory


class Machine:
    """Encode in a time of its own: a fixed cost per batch, a cost per image, and a limit of images at once."""

    def __init__(self, *, per_batch=8.0, per_image=1.0, fits=10**6, error=None):
        self.now, self.sizes = 0.0, []
        self.per_batch, self.per_image, self.fits = per_batch, per_image, fits
        self.error = error or torch.OutOfMemoryError("CUDA out of memory")

    def clock(self):
        return self.now

    def encode(self, images):
        if len(images) > self.fits:
            raise self.error
        self.sizes.append(len(images))
        self.now += self.per_batch + self.per_image * len(images)
        return np.array(images, dtype=np.float32)


IMAGES = [np.full(2, n) for n in range(3000)]


def run(machine, images=IMAGES, **options):
    batches = Batches(**options, clock=machine.clock)
    np.testing.assert_array_equal(batches.run(machine.encode, images), np.array(images, dtype=np.float32))
    assert sum(machine.sizes) == len(images)
    return batches.size


def test_results_of_any_form_come_one_per_item_in_order():
    sizes = []

    def work(items):
        if len(items) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        sizes.append(len(items))
        return [(item, "x" * item) for item in items]

    batches = Batches(8)
    assert batches.each(work, range(10)) == [(n, "x" * n) for n in range(10)]
    assert sizes == [4, 4, 2]
    assert batches.each(work, []) == []


def test_what_a_caller_does_with_the_results_is_not_timed():
    machine = Machine()
    batches = Batches(clock=machine.clock)
    for piece in batches.pieces(machine.encode, IMAGES):
        machine.now += 1000 * len(piece)
    assert batches.size == 128  # as in the test below; counted in, twice the size would never seem to pay


def test_batches_double_while_that_pays():
    # n images take 8 + n: twice 64 gains (128 / 136) / (64 / 72) = 1.059, twice 128 gains 1.030, which is too little.
    machine = Machine()
    assert run(machine) == 128
    assert max(machine.sizes) == 256
    assert machine.sizes[:7] == [4, 4, 4, 8, 8, 8, 16]


def test_batches_stay_small_where_size_does_not_matter():
    assert run(Machine(per_batch=0.0)) == 4


def test_batches_have_a_limit():
    assert run(Machine(per_batch=1e6)) == MOST
    assert run(Machine(per_batch=1e6), most=3) == 3


def test_a_slow_first_batch_is_not_held_against_a_size():
    machine = Machine(per_batch=0.0)
    plain = machine.encode

    def encode(images):
        machine.now += 1000.0 * (len(images) not in machine.sizes)  # as a library that tunes itself does
        return plain(images)

    machine.encode = encode
    assert run(machine) == 4


def test_a_fixed_size_is_kept():
    machine = Machine()
    assert run(machine, IMAGES[:20], fixed=7) == 7
    assert machine.sizes == [7, 7, 6]


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: not enough memory: you tried ..."),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 400 bytes"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"),
        MemoryError(),
    ],
)
def test_out_of_memory_halves_the_batch_for_good(error, caplog):
    machine = Machine(fits=11, error=error)
    with caplog.at_level(logging.WARNING):
        assert run(machine, fixed=40) == 10
    assert set(machine.sizes) == {10}
    assert [record.getMessage() for record in caplog.records] == [
        "out of memory with 40 images at once; going on with 20",
        "out of memory with 20 images at once; going on with 10",
    ]


def test_the_search_ends_where_memory_does():
    machine = Machine(per_batch=1e6, fits=40)
    assert run(machine) == 32
    assert max(machine.sizes) == 32


def test_what_is_learned_stays_for_the_next_call():
    machine = Machine(fits=5)
    batches = Batches(8, clock=machine.clock)
    batches.run(machine.encode, IMAGES[:8])
    machine.sizes.clear()
    batches.run(machine.encode, IMAGES[:8])
    assert machine.sizes == [4, 4]


def test_memory_for_not_even_one_image_is_an_error():
    with pytest.raises(ModelError, match="single image"):
        Batches().run(Machine(fits=0).encode, IMAGES[:3])


def test_other_errors_are_not_taken_for_it():
    error = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    assert not is_out_of_memory(error)
    with pytest.raises(RuntimeError, match="mat1"):
        Batches().run(Machine(fits=0, error=error).encode, IMAGES[:3])


def test_a_real_allocation_that_is_refused_is_recognised():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)
