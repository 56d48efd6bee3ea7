"""Fill holes by LaMa (Suvorov et al., 2022), a network with Fourier convolutions that sees all of its crop at once.

Runs the published big-lama in PyTorch, as simple-lama-inpainting 0.1.2 does (which demands NumPy 1): RGB as float32,
the hole as 0 and 1, both padded ``symmetric`` to a multiple of 8. What it sees is the hole with its surroundings. The
file is a TorchScript program, and nothing shuts it in: it runs only if its SHA-256 is the published one, or one that
the profile names. cuFFT takes no bfloat16, so that it computes in float32.
"""

import hashlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from pairwright.schemas.errors import ModelError
from pairwright.schemas.removing import LamaConfig, RemovalsConfig
from pairwright.tasks.models.batches import Batches
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.models.inpainting import Hole, Pixels, Window
from pairwright.tasks.models.weights import (
    PublishedFile,
    absolute,
    find_checkpoint,
    identify_files,
    loading,
    require_packages,
)

FIELD = "removals.lama"
PUBLISHED = PublishedFile(
    field=FIELD,
    name="big-lama.pt",
    url="https://github.com/enesmsahin/simple-lama-inpainting/releases/download/v0.1.0/big-lama.pt",
    sha256="7ba7aa7ac37a4d41fdbbeba3a2af7ead18058552997e3a3cd1a3b2210c9e6b4c",
)
TRUSTED = {PUBLISHED.sha256, "344c77bbcb158f17dd143070d1e789f38a66c04202311ae3a258ef66667a9ea9"}
"""Hashes of the files that run without being asked about: the published one, and IOPaint's copy of big-lama."""
STEP, DIVISOR = 64, 8
"""Crops begin and end at multiples of ``STEP`` pixels, so that few sizes occur; the network halves them three times."""
MIN_CONTEXT = 64
"""Pixels around a hole at the least, where the image has them."""
MAX_CROPS = 8
"""Crops that a GPU takes at once, of what is found by trying: a pixel takes 0.8 kB, and what cuDNN and cuFFT need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoleCrop:
    """A hole with its surroundings, as the network takes it."""

    pixels: Pixels
    """``(height, width, 4)``: RGB, and 1 in the hole; shrunk, then padded."""
    shrunk: tuple[int, int]
    """Height and width before the padding."""
    size: tuple[int, int]
    """Height and width in the image."""
    place: tuple[slice, slice]
    """Where the window is in the crop, in pixels of the image."""


@dataclass(frozen=True, kw_only=True)
class LamaInpainter:
    """Inpainter by LaMa; its weights are loaded once per process, when they are first needed."""

    config: RemovalsConfig

    @property
    def version(self) -> str:
        """Say which weights these are."""
        return f"LaMa {self.config.lama.revision or PUBLISHED.name}"

    def prepare(self, image: Pixels, hole: Hole, window: Window) -> HoleCrop:
        """Return the hole's crop; needs no weights."""
        return crop_hole(image, hole, window, context=self.config.context, max_side=self.config.max_side)

    def fill(self, prepared: Sequence[HoleCrop]) -> Iterator[Pixels]:
        """Yield the filled windows; crops of one size go through the network together."""
        network, batches = _load(self.config.lama.model_dump_json(), self.config.batch_size)
        filled: dict[int, Pixels] = {}
        for shape in {crop.pixels.shape for crop in prepared}:
            places = [place for place, crop in enumerate(prepared) if crop.pixels.shape == shape]
            made = batches.each(partial(run_lama, network), [prepared[place].pixels for place in places])
            filled.update(zip(places, made, strict=True))
        for place, crop in enumerate(prepared):
            yield put_back(crop, filled.pop(place))


def crop_hole(image: Pixels, hole: Hole, window: Window, *, context: float, max_side: int) -> HoleCrop:
    """Return a hole ``(h, w)`` of an image's window with what is around it.

    ``context`` is seen on each side, in sides of the window. A crop longer than ``max_side`` is shrunk, before padding.
    """
    import cv2

    x0, y0, x1, y1 = window
    (left, right), (top, bottom) = _grown(x0, x1, image.shape[1], context), _grown(y0, y1, image.shape[0], context)
    size = (bottom - top, right - left)
    place = (slice(y0 - top, y1 - top), slice(x0 - left, x1 - left))
    pixels, inside = image[top:bottom, left:right], np.zeros(size, dtype=np.float32)
    inside[place] = hole
    scale = min(1.0, max_side / max(size))
    shrunk = (max(ceil(size[0] * scale - 1e-6), 1), max(ceil(size[1] * scale - 1e-6), 1))  # but for errors of floats
    if shrunk != size:
        pixels, inside = (cv2.resize(one, shrunk[::-1], interpolation=cv2.INTER_AREA) for one in (pixels, inside))
    seen: Pixels = np.dstack([pixels, inside > 0]).astype(np.uint8)  # a pixel of which any part is hole, is hole
    padding = (*((0, -side % DIVISOR) for side in shrunk), (0, 0))
    return HoleCrop(pixels=np.pad(seen, padding, mode="symmetric"), shrunk=shrunk, size=size, place=place)


def _grown(low: int, high: int, limit: int, context: float) -> tuple[int, int]:
    """Return a span with its context, as far as the image reaches."""
    more = max(ceil(context * (high - low)), MIN_CONTEXT)
    return max(low - more, 0) // STEP * STEP, min(ceil((high + more) / STEP) * STEP, limit)


def put_back(crop: HoleCrop, filled: Pixels) -> Pixels:
    """Return the ``(h, w, 3)`` pixels of a hole's window from the filled ``(height, width, 3)`` crop."""
    import cv2

    inner = filled[: crop.shrunk[0], : crop.shrunk[1]]
    if crop.shrunk != crop.size:
        inner = cv2.resize(inner, crop.size[::-1], interpolation=cv2.INTER_CUBIC).astype(np.uint8, copy=False)
    return np.ascontiguousarray(inner[crop.place])


def run_lama(network: Any, crops: Sequence[Pixels]) -> list[Pixels]:
    """Return the ``(height, width, 3)`` pixels that the network makes of ``(height, width, 4)`` crops."""
    import torch

    # The just-in-time optimiser works anew on each size of input, for seconds.
    plainly = torch.jit.optimized_execution(should_optimize=False)  # pyright: ignore[reportPrivateImportUsage]  (it is not listed)
    with torch.inference_mode(), plainly:
        seen = torch.from_numpy(np.stack(crops)).to(choose_device()).permute(0, 3, 1, 2).contiguous()
        made = network(seen[:, :3].float() / 255, seen[:, 3:].float())
        if not bool(torch.isfinite(made).all()):
            raise ModelError(f"{FIELD}: the network gave pixels that are not finite")
        return list((made * 255).clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous().cpu().numpy())


def pin_lama(config: LamaConfig, *, download: bool) -> LamaConfig:
    """Return the configuration with the revision of the file that is on this machine, once it may run."""
    require_packages(FIELD, "torch", "cv2")
    path = find_checkpoint(config.checkpoint, PUBLISHED, config.revision, download=download)
    _read_trusted(config, path)
    update = {"revision": identify_files([path]), "checkpoint": absolute(config.checkpoint)}
    return config.model_copy(update=update)


def _read_trusted(config: LamaConfig, path: Path) -> bytes:
    """Return a program; refuse one that nobody vouches for. Nothing of it runs."""
    data = path.read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    if sha256 not in TRUSTED | {config.sha256.lower()}:
        raise ModelError(
            f"{FIELD}.checkpoint: {path} is a program, and not the published {PUBLISHED.name}: its SHA-256 is "
            f"{sha256}. If you know where it comes from, and trust it: --set {FIELD}.sha256={sha256}"
        )
    return data


@lru_cache(maxsize=1)
def _load(configuration: str, batch: int) -> tuple[Any, Batches]:
    """Load the program, and try it."""
    import torch

    config = LamaConfig.model_validate_json(configuration)
    path = find_checkpoint(config.checkpoint, PUBLISHED, config.revision, download=False)
    data = _read_trusted(config, path)
    with loading(FIELD, path):
        network = torch.jit.load(io.BytesIO(data), map_location=choose_device()).eval()
        run_lama(network, [np.ones((STEP, STEP, 4), dtype=np.uint8)])
    return network, Batches(batch, most=MAX_CROPS, on_cpu=1)
