"""LaMa inpainter (Suvorov et al., 2022): Fourier convolutions, which see the whole crop at once.

Runs the published big-lama in PyTorch, as simple-lama-inpainting 0.1.2 does (which requires NumPy
1), on a crop around the hole: RGB as float32 (cuFFT has no bfloat16), the hole as 0 and 1, both
padded. The file is a TorchScript program without a sandbox: it runs only if its SHA-256 is the
published one, or one named in the profile.
"""

import hashlib
import io
from collections import defaultdict
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
Window = tuple[int, int, int, int]
"""Pixels x0, y0, x1, y1, the last two exclusive."""
FIELD = "removals.lama"
PUBLISHED = weights.PublishedFile(
    field=FIELD,
    name="big-lama.pt",
    url="https://github.com/enesmsahin/simple-lama-inpainting/releases/download/v0.1.0/big-lama.pt",
    sha256="7ba7aa7ac37a4d41fdbbeba3a2af7ead18058552997e3a3cd1a3b2210c9e6b4c",
)
TRUSTED = {PUBLISHED.sha256, "344c77bbcb158f17dd143070d1e789f38a66c04202311ae3a258ef66667a9ea9"}
"""Hashes of the files that run unasked: the published one, and IOPaint's copy of big-lama."""
STEP = 64
"""Crops end at multiples of so many pixels, for few sizes."""
DIVISOR = 8
"""Multiple of a padded crop's sides, which the network halves three times."""
MIN_CONTEXT = 64
"""Minimum pixels around a hole, within the image."""
MAX_CROPS = 8
"""Initial crops at once on a GPU: a pixel takes 0.8 kB, plus the needs of cuDNN and cuFFT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoleCrop:
    """Hole with its surroundings, as input of the network."""

    pixels: Pixels
    """``(height, width, 4)``: RGB, and 1 in the hole; shrunk, then padded."""
    shrunk: tuple[int, int]
    """Height and width before the padding."""
    size: tuple[int, int]
    """Height and width in the image."""
    window: tuple[slice, slice]
    """Rows and columns of the hole's window in the crop, in pixels of the image."""


@dataclass(frozen=True, kw_only=True)
class LamaInpainter:
    """Inpainter by LaMa; its weights are loaded at the first use, once per process."""

    config: RemovalsConfig
    name: str = "lama"

    @property
    def version(self) -> str:
        """Return the identity of the weights."""
        return f"LaMa {self.config.lama.revision or PUBLISHED.name}"

    def prepare(self, image: Pixels, hole: Hole, window: Window, tag: str = "") -> HoleCrop:  # noqa: ARG002 (the name is for editors)
        """Return the crop of a hole ``(h, w)`` of an image's window, shrunk to ``max_side``."""
        height, width = image.shape[:2]
        x0, y0, x1, y1 = window
        left, right = self._extend(x0, x1, width)
        top, bottom = self._extend(y0, y1, height)
        return self._make_crop(
            image[top:bottom, left:right],
            hole,
            window=(slice(y0 - top, y1 - top), slice(x0 - left, x1 - left)),
        )

    def _make_crop(
        self,
        pixels: Pixels,
        hole: Hole,
        *,
        window: tuple[slice, slice],
    ) -> HoleCrop:
        """Return the shrunk and padded crop of pixels with a hole in their ``window``."""
        size = pixels.shape[:2]
        mask = np.zeros(size, dtype=np.float32)
        mask[window] = hole
        shrunk = self._shrink(size)
        if shrunk != size:
            pixels = _resize_area(pixels, shrunk)
            mask = _resize_area(mask, shrunk)
        # A pixel partly in the hole is in it.
        crop = np.dstack([pixels, mask > 0]).astype(np.uint8)
        return HoleCrop(
            pixels=_pad(crop),
            shrunk=shrunk,
            size=size,
            window=window,
        )

    def _extend(self, low: int, high: int, limit: int) -> tuple[int, int]:
        """Return the range of pixels of an axis with the context of a window."""
        context = max(ceil(self.config.context * (high - low)), MIN_CONTEXT)
        start = max(low - context, 0) // STEP * STEP
        end = ceil((high + context) / STEP) * STEP
        return start, min(end, limit)

    def _shrink(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the height and width within ``max_side``; errors of floats are tolerated."""
        scale = min(1.0, self.config.max_side / max(size))
        height, width = (ceil(side * scale - 1e-6) for side in size)
        return max(height, 1), max(width, 1)

    def inpaint(self, prepared: Sequence[HoleCrop]) -> Iterator[Pixels]:
        """Yield the filled windows; crops of one size are batched."""
        network, batches = _load(self)
        work = partial(run_lama, network)
        filled: dict[int, Pixels] = {}
        for positions in _group_by_shape(prepared):
            crops = [prepared[position].pixels for position in positions]
            results = batches.each(work, crops)
            filled.update(zip(positions, results, strict=True))
        for position, crop in enumerate(prepared):
            yield put_back(crop, filled.pop(position))


def _resize_area(values: Any, size: tuple[int, int]) -> Any:
    """Return pixels or a mask, shrunk by OpenCV to a height and width."""
    import cv2

    return cv2.resize(values, size[::-1], interpolation=cv2.INTER_AREA)


def _pad(crop: Pixels) -> Pixels:
    """Return a crop with sides that are multiples of ``DIVISOR``."""
    below, right = (-side % DIVISOR for side in crop.shape[:2])
    padding = ((0, below), (0, right), (0, 0))
    return np.pad(crop, padding, mode="symmetric")


def _group_by_shape(crops: Sequence[HoleCrop]) -> list[list[int]]:
    """Return the positions of the crops of each shape."""
    groups: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for position, crop in enumerate(crops):
        groups[crop.pixels.shape].append(position)
    return list(groups.values())


def put_back(crop: HoleCrop, filled: Pixels) -> Pixels:
    """Return the ``(h, w, 3)`` pixels of a hole's window from the filled crop."""
    import cv2

    height, width = crop.shrunk
    inner = filled[:height, :width]
    if crop.shrunk != crop.size:
        size = crop.size[::-1]
        resized = cv2.resize(inner, size, interpolation=cv2.INTER_CUBIC)
        inner = resized.astype(np.uint8, copy=False)
    return np.ascontiguousarray(inner[crop.window])


def run_lama(network: Any, crops: Sequence[Pixels]) -> list[Pixels]:
    """Return the network's ``(height, width, 3)`` pixels for ``(height, width, 4)`` crops."""
    import torch

    # The JIT optimiser takes seconds for each input size.
    unoptimised = torch.jit.optimized_execution(should_optimize=False)  # pyright: ignore[reportPrivateImportUsage]  (it is not listed)
    with torch.inference_mode(), unoptimised:
        batch = torch.from_numpy(np.stack(crops)).to(choose_device())
        channels = batch.permute(0, 3, 1, 2).contiguous()
        pixels = channels[:, :3].float() / 255
        masks = channels[:, 3:].float()
        output = network(pixels, masks)
        levels = (output * 255).clamp(0, 255).to(torch.uint8)
        filled = levels.permute(0, 2, 3, 1).contiguous()
        return list(filled.cpu().numpy())


def pin_lama(config: LamaConfig, *, download: bool) -> LamaConfig:
    """Return the configuration with the revision of the local file, if it is trusted."""
    weights.require_modules(FIELD, "torch", "cv2")
    path = _find_file(config, download=download)
    _read_trusted(config, path)
    revision = weights.identify_files([path])
    checkpoint = weights.absolute(config.checkpoint)
    update = {"revision": revision, "checkpoint": checkpoint}
    return config.model_copy(update=update)


def _find_file(config: LamaConfig, *, download: bool) -> Path:
    return weights.find_checkpoint(
        config.checkpoint,
        PUBLISHED,
        config.revision,
        download=download,
    )


def _read_trusted(config: LamaConfig, path: Path) -> bytes:
    """Return a program's bytes; refuse untrusted ones."""
    data = path.read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    if sha256 not in TRUSTED | {config.sha256.lower()}:
        raise ModelError(
            f"{FIELD}.checkpoint: {path} is a program other than the published "
            f"{PUBLISHED.name} (SHA-256 {sha256}). "
            f"If you trust its origin: --set {FIELD}.sha256={sha256}"
        )
    return data


@lru_cache(maxsize=1)
def _load(inpainter: LamaInpainter) -> tuple[Any, AdaptiveBatches]:
    import torch

    config = inpainter.config.lama
    path = _find_file(config, download=False)
    program = io.BytesIO(_read_trusted(config, path))
    with weights.loading(FIELD, path):
        network = torch.jit.load(program, map_location=choose_device()).eval()
        example = np.ones((STEP, STEP, 4), dtype=np.uint8)
        run_lama(network, [example])
    batches = AdaptiveBatches(
        inpainter.config.batch_size,
        most=MAX_CROPS,
        on_cpu=1,
    )
    return network, batches
