"""Vectors in bfloat16 on the GPU against float32 on the CPU, and batches that are halved where
memory really ends."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairwright.schemas.config import ClipConfig, Dinov2Config
from pairwright.tasks.models import embedders
from pairwright.tasks.models.embedders import Embedder
from pairwright.tasks.models.image_encoder import pin_dinov2
from pairwright.tasks.models.open_clip_embedder import pin_clip
from tests.fixtures.checkpoints import CLIP_ARCHITECTURE, write_clip_folder, write_dinov2_folder
from tests.gpu.conftest import OnCpu
from tests.tasks.models.samples import photographs, unit

pytestmark = pytest.mark.gpu
LEAST_COSINE, MOST_SHIFT = 0.9995, 0.03
"""Of a vector to float32's, and by how much two images' cosine may move. bfloat16 keeps 8 bits of a
number: with the same autocast on a CPU, the least cosines of these models are 0.99993 (CLIP) and
0.999995 (DINOv2), and cosines move by 0.009 and 0.0006. A GPU adds up in another order, and rounds
elsewhere: it gets three times as much."""
LEAST_ROUNDING = 5e-7
"""1 - cosine of vectors that were made in bfloat16 at all; float32's differ by some 1e-7."""
BATCH, ROOM = 256, 120 << 20
"""224 x 224 pixels in float32 take 0.6 MB an image: a batch 154 MB, which the room does not
have."""


def write_clip(folder: Path, **vision: Any) -> ClipConfig:
    sizes = {**CLIP_ARCHITECTURE, "vision_cfg": {**CLIP_ARCHITECTURE["vision_cfg"], **vision}}
    return pin_clip(
        ClipConfig(checkpoint=str(write_clip_folder(folder / "clip", architecture=sizes))),
        download=False,
    )


def make_clip(folder: Path) -> Embedder:
    return embedders.make_clip(write_clip(folder))


def make_dinov2(folder: Path) -> Embedder:
    config = Dinov2Config(model=str(write_dinov2_folder(folder / "dinov2")))
    return embedders.make_dinov2(pin_dinov2(config, download=False))


@pytest.mark.parametrize("make", [make_clip, make_dinov2])
def test_bf16_is_float32_but_for_its_rounding(
    make: Any, dry: bool, on_cpu: OnCpu, tmp_path: Path, figure: Any
):
    embedder = make(tmp_path)
    prepared = [embedder.prepare(image) for image in photographs().values()]
    with on_cpu():
        wanted = unit(embedder.encode(prepared))
    embedder.encode(prepared)  # loads and warms up
    began = time.perf_counter()
    found = unit(embedder.encode(prepared))
    seconds = time.perf_counter() - began
    cosine, shift = (found * wanted).sum(1).min(), np.abs(found @ found.T - wanted @ wanted.T).max()
    figure(f"least cosine {cosine:.6f} (needs {LEAST_COSINE})")
    figure(f"cosines of two images move by {shift:.1g} (up to {MOST_SHIFT})")
    figure(f"{len(prepared) / seconds:,.0f} images/s")
    assert cosine >= LEAST_COSINE
    assert shift <= MOST_SHIFT
    assert dry or 1 - cosine > LEAST_ROUNDING, "this is float32"


@contextmanager
def room_for(size_bytes: int, dry: bool) -> Iterator[None]:
    """Let this process take so many bytes more of the GPU's memory; of the machine's, in a dry
    run."""
    if dry:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(
            resource.RLIMIT_AS, (pages * resource.getpagesize() + size_bytes, before[1])
        )
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)
        return
    import torch

    torch.cuda.empty_cache()
    whole = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(
        (torch.cuda.memory_reserved(0) + size_bytes) / whole, 0
    )
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, 0)


def test_a_batch_that_does_not_fit_is_halved(dry: bool, tmp_path: Path, caplog: Any, figure: Any):
    embedder = embedders.make_clip(write_clip(tmp_path, image_size=224), BATCH)
    few = [embedder.prepare(image) for image in photographs().values()]
    prepared = [few[place % len(few)] for place in range(BATCH)]
    wanted = unit(embedder.encode(prepared))
    with caplog.at_level(logging.WARNING), room_for(ROOM, dry):
        found = unit(embedder.encode(prepared))
    said = [record.getMessage() for record in caplog.records]
    cosine = (found * wanted).sum(1).min()
    figure(f"{said[-1] if said else 'no batch was halved'}; least cosine {cosine:.6f}")
    assert said[:1] == [f"out of memory with {BATCH} images at once; going on with {BATCH // 2}"]
    assert cosine >= LEAST_COSINE, "another size of batch may be computed by another algorithm"
