"""LaMa inpainter (Suvorov et al., 2022), a network with Fourier convolutions that sees its whole crop at once.

Runs the published big-lama in PyTorch, as simple-lama-inpainting 0.1.2 does (which requires NumPy
1), on a crop around the hole: RGB as float32 (cuFFT has no bfloat16), the hole as 0 and 1, both
padded. The file is a TorchScript program without a sandbox: it runs only if its SHA-256 is the
published one, or one named in the profile.
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
from numpy.typing import NDArray

from pairwright.schemas.errors import ModelError
from pairwright.schemas.removing import LamaConfig, RemovalsConfig
from pairwright.tasks.models import weights
from pairwright.tasks.models.adaptive_batches import AdaptiveBatches
from pairwright.tasks.models.devices import choose_device

Pixels = NDArray[np.uint8]
Hole = NDArray[np.bool_]
Window = tuple[int, int, int, int]  # pixels x0, y0, x1, y1, the last two exclusive
FIELD = "removals.lama"
PUBLISHED = weights.PublishedFile(
    field=FIELD,
    name="big-lama.pt",
    url="https://github.com/enesmsahin/simple-lama-inpainting/releases/download/v0.1.0/big-lama.pt",
    sha256="7ba7aa7ac37a4d41fdbbeba3a2af7ead18058552997e3a3cd1a3b2210c9e6b4c",
)
TRUSTED = {PUBLISHED.sha256, "344c77bbcb158f17dd143070d1e789f38a66c04202311ae3a258ef66667a9ea9"}
"""Hashes of the files that run unasked: the published one, and IOPaint's copy of big-lama."""
STEP, DIVISOR = (
    64,
    8,
)  # crops end at multiples of STEP pixels, for few sizes; the network halves them three times
MIN_CONTEXT = 64  # minimum pixels around a hole, within the image
MAX_CROPS = (
    8  # initial crops at once on a GPU: a pixel takes 0.8 kB, plus the needs of cuDNN and cuFFT
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HoleCrop:
    """Hole with its surroundings, as input of the network."""

    pixels: Pixels  # ``(height, width, 4)``: RGB, and 1 in the hole; shrunk, then padded
    shrunk: tuple[int, int]  # height and width before the padding
    size: tuple[int, int]  # height and width in the image
    place: tuple[slice, slice]  # position of the window in the crop, in pixels of the image


@dataclass(frozen=True, kw_only=True)
class LamaInpainter:
    """Inpainter by LaMa; its weights are loaded at the first use, once per process."""

    config: RemovalsConfig

    @property
    def version(self) -> str:
        """Return the identity of the weights."""
        return f"LaMa {self.config.lama.revision or PUBLISHED.name}"

    def prepare(self, image: Pixels, hole: Hole, window: Window) -> HoleCrop:
        """Return a hole ``(h, w)`` of an image's window with its surroundings, shrunk to ``max_side``, then padded."""
        import cv2

        x0, y0, x1, y1 = window
        (left, right), (top, bottom) = (
            self._extend(x0, x1, image.shape[1]),
            self._extend(y0, y1, image.shape[0]),
        )
        size = (bottom - top, right - left)
        place = (slice(y0 - top, y1 - top), slice(x0 - left, x1 - left))
        pixels, inside = image[top:bottom, left:right], np.zeros(size, dtype=np.float32)
        inside[place] = hole
        scale = min(1.0, self.config.max_side / max(size))
        shrunk = (
            max(ceil(size[0] * scale - 1e-6), 1),
            max(ceil(size[1] * scale - 1e-6), 1),
        )  # tolerate float errors
        if shrunk != size:
            pixels, inside = (
                cv2.resize(one, shrunk[::-1], interpolation=cv2.INTER_AREA)
                for one in (pixels, inside)
            )
        seen: Pixels = np.dstack([pixels, inside > 0]).astype(
            np.uint8
        )  # a pixel partly in the hole is in it
        padding = (*((0, -side % DIVISOR) for side in shrunk), (0, 0))
        return HoleCrop(
            pixels=np.pad(seen, padding, mode="symmetric"), shrunk=shrunk, size=size, place=place
        )

    def _extend(self, low: int, high: int, limit: int) -> tuple[int, int]:
        more = max(ceil(self.config.context * (high - low)), MIN_CONTEXT)
        return max(low - more, 0) // STEP * STEP, min(ceil((high + more) / STEP) * STEP, limit)

    def fill(self, prepared: Sequence[HoleCrop]) -> Iterator[Pixels]:
        """Yield the filled windows; crops of one size are batched."""
        network, batches = _load(self)
        filled: dict[int, Pixels] = {}
        for shape in {crop.pixels.shape for crop in prepared}:
            places = [place for place, crop in enumerate(prepared) if crop.pixels.shape == shape]
            made = batches.each(
                partial(run_lama, network), [prepared[place].pixels for place in places]
            )
            filled.update(zip(places, made, strict=True))
        yield from (put_back(crop, filled.pop(place)) for place, crop in enumerate(prepared))


def put_back(crop: HoleCrop, filled: Pixels) -> Pixels:
    """Return the ``(h, w, 3)`` pixels of a hole's window from the filled ``(height, width, 3)`` crop."""
    import cv2

    inner = filled[: crop.shrunk[0], : crop.shrunk[1]]
    if crop.shrunk != crop.size:
        inner = cv2.resize(inner, crop.size[::-1], interpolation=cv2.INTER_CUBIC).astype(
            np.uint8, copy=False
        )
    return np.ascontiguousarray(inner[crop.place])


def run_lama(network: Any, crops: Sequence[Pixels]) -> list[Pixels]:
    """Return the network's ``(height, width, 3)`` pixels for ``(height, width, 4)`` crops."""
    import torch

    # The JIT optimiser takes seconds for each input size.
    plainly = torch.jit.optimized_execution(should_optimize=False)  # pyright: ignore[reportPrivateImportUsage]  (it is not listed)
    with torch.inference_mode(), plainly:
        seen = (
            torch.from_numpy(np.stack(crops)).to(choose_device()).permute(0, 3, 1, 2).contiguous()
        )
        made = network(seen[:, :3].float() / 255, seen[:, 3:].float())
        return list(
            (made * 255)
            .clamp(0, 255)
            .to(torch.uint8)
            .permute(0, 2, 3, 1)
            .contiguous()
            .cpu()
            .numpy()
        )


def pin_lama(config: LamaConfig, *, download: bool) -> LamaConfig:
    """Return the configuration with the revision of the local file, if it is trusted."""
    weights.require_packages(FIELD, "torch", "cv2")
    path = weights.find_checkpoint(config.checkpoint, PUBLISHED, config.revision, download=download)
    _read_trusted(config, path)
    found, checkpoint = weights.identify_files([path]), weights.absolute(config.checkpoint)
    return config.model_copy(update={"revision": found, "checkpoint": checkpoint})


def _read_trusted(config: LamaConfig, path: Path) -> bytes:
    """Return a program's bytes; refuse untrusted ones."""
    data = path.read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    if sha256 not in TRUSTED | {config.sha256.lower()}:
        raise ModelError(
            f"{FIELD}.checkpoint: {path} is a program other than the published {PUBLISHED.name} (SHA-256 {sha256}). If "
            f"you trust its origin: --set {FIELD}.sha256={sha256}"
        )
    return data


@lru_cache(maxsize=1)
def _load(inpainter: LamaInpainter) -> tuple[Any, AdaptiveBatches]:
    import torch

    config = inpainter.config.lama
    path = weights.find_checkpoint(config.checkpoint, PUBLISHED, config.revision, download=False)
    program = io.BytesIO(_read_trusted(config, path))
    with weights.loading(FIELD, path):
        network = torch.jit.load(program, map_location=choose_device()).eval()
        run_lama(network, [np.ones((STEP, STEP, 4), dtype=np.uint8)])
    return network, AdaptiveBatches(inpainter.config.batch_size, most=MAX_CROPS, on_cpu=1)
