"""Measure embedding: from files to the vectors of two encoders, against the libraries' own
pipelines.

Run with ``make bench BENCH=embed``, or ``python -m tests.bench.bench_embed``; takes three minutes
and 3 GB. Needs the extra ``models``; checkpoints are random, in the laptop profile's sizes. The
sides take turns on all cores.

The baseline is one loop in inference mode that decodes each JPEG file of 512 x 384 pixels once
(Pillow) for both transforms, open_clip's ``preprocess_val`` and DINOv2's published torchvision
transform, at the better of two batch sizes. Ours is the stage itself in as many processes as there
are cores; its rows (float16 vectors, perceptual hashes) are made, too. With a GPU both use one, in
bfloat16, and ours prepares images in other processes meanwhile, as a build does.
"""

import io
import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pairwright.schemas.config import ClipConfig, Dinov2Config, EmbeddingConfig
from pairwright.tasks.mining.embed_images import embed_images
from pairwright.tasks.models.devices import choose_device, count_gpus
from tests.bench.turns import (
    CORES,
    begin_worker,
    count_workers,
    name_machine,
    print_rates,
    take_turns,
)
from tests.fixtures.checkpoints import DINOV2_PROCESSOR, write_clip_folder, write_dinov2_folder
from tests.fixtures.pictures import photograph
from tests.tasks.models.samples import FILES

SIZE = (512, 384)
TURNS = 3
EMBEDDED, BATCHES = (2048, (64, 256)) if count_gpus() else (32, (4, 16))
CLIP: dict[str, Any] = {
    "embed_dim": 512,
    "quick_gelu": True,
    "vision_cfg": {"image_size": 224, "layers": 12, "width": 768, "patch_size": 32},
    "text_cfg": {"context_length": 8, "vocab_size": 64, "width": 16, "heads": 2, "layers": 1},
}
DINOV2 = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6, "image_size": 518}
PROCESSOR = {
    **DINOV2_PROCESSOR,
    "size": {"shortest_edge": 256},
    "crop_size": {"height": 224, "width": 224},
}


def make_files(count: int) -> list[bytes]:
    """Return JPEG files of photographs, each a little different."""
    rng = np.random.default_rng(0)
    images = [Image.open(path).convert("RGB") for path in FILES]
    return [_jpeg(images[number % len(images)], rng) for number in range(count)]


def _jpeg(image: Image.Image, rng: np.random.Generator) -> bytes:
    left, top = rng.uniform(0, 0.1, 2) * image.size
    box = (left, top, image.width * 0.9 + left, image.height * 0.9 + top)
    sink = io.BytesIO()
    image.resize(SIZE, Image.Resampling.LANCZOS, box=box).save(sink, "JPEG", quality=90)
    return sink.getvalue()


def transforms() -> list[Callable[[Image.Image], Any]]:
    """Return open_clip's transform, and that of DINOv2's repository."""
    from open_clip.transform import PreprocessCfg, image_transform_v2
    from torchvision import transforms as T

    dinov2 = [
        T.Resize(256, T.InterpolationMode.BICUBIC),
        T.CenterCrop(224),
        T.ToTensor(),
        T.Normalize(DINOV2_PROCESSOR["image_mean"], DINOV2_PROCESSOR["image_std"]),
    ]
    return [image_transform_v2(PreprocessCfg(), is_train=False), T.Compose(dinov2)]


def prepare_theirs(
    files: Sequence[bytes], steps: Sequence[Callable[[Image.Image], Any]]
) -> list[Any]:
    """Open each file, and transform it."""
    import torch

    images = [Image.open(io.BytesIO(data)).convert("RGB") for data in files]
    return [torch.stack([step(image) for image in images]) for step in steps]


LOADED: list[Any] = []  # both models, in the process that runs the libraries' loop


def run_loop(folder: Path, files: Sequence[bytes], batch: int) -> None:
    """Embed as a careful user of the libraries would."""
    import open_clip
    import torch
    from torch.nn.functional import normalize
    from transformers import Dinov2Model

    device = choose_device()
    if not LOADED:
        torch.set_num_threads(CORES)
        LOADED[:] = [open_clip.create_model(f"local-dir:{folder / 'clip'}").eval().to(device)]
        LOADED.append(Dinov2Model.from_pretrained(folder / "dinov2").eval().to(device))
    clip, dinov2 = LOADED
    with (
        torch.inference_mode(),
        torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"),
    ):
        for start in range(0, len(files), batch):
            first, second = (
                one.to(device) for one in prepare_theirs(files[start : start + batch], transforms())
            )
            normalize(clip.encode_image(first)).float().cpu()
            normalize(dinov2(second).last_hidden_state[:, 0]).float().cpu()


def embed_ours(files: Sequence[bytes], config: EmbeddingConfig) -> int:
    """Run the stage; a worker's turn."""
    return len(list(embed_images([photograph(data) for data in files], config)))


def measure_vectors(files: Sequence[bytes]) -> None:
    """Print images per second of both sides."""
    size, spawn = -(-len(files) // (2 * count_workers())), get_context("spawn")
    shards = [files[start : start + size] for start in range(0, len(files), size)]
    with (
        tempfile.TemporaryDirectory() as place,
        ProcessPoolExecutor(count_workers(), spawn, begin_worker) as pool,
        ProcessPoolExecutor(1, spawn) as alone,
    ):
        folder = Path(place)
        write_clip_folder(folder / "clip", architecture=CLIP)
        write_dinov2_folder(folder / "dinov2", architecture=DINOV2, processor=PROCESSOR)
        config = EmbeddingConfig(
            embedders=("clip", "dinov2"),
            clip=ClipConfig(checkpoint=str(folder / "clip")),
            dinov2=Dinov2Config(model=str(folder / "dinov2")),
        )
        sides: dict[str, Callable[[], object]] = {
            "ours": lambda: list(pool.map(partial(embed_ours, config=config), shards))
        } | {
            f"loop, batch {batch}": lambda batch=batch: alone.submit(
                run_loop, folder, files, batch
            ).result()
            for batch in BATCHES
        }
        found = take_turns(sides, TURNS)
    title = f"vectors of both encoders, sizes of the laptop profile, {name_machine()} (target 1.3x)"
    print_rates(title, found, len(files), "images", busy=False)


def main() -> None:
    """Print the table."""
    os.environ["OMP_WAIT_POLICY"] = (
        "PASSIVE"  # for both sides: threads that spin are far slower beside other work
    )
    measure_vectors(make_files(EMBEDDED))


if __name__ == "__main__":
    main()
