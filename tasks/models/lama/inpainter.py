"""Fill holes in images by LaMa: a network with Fourier convolutions, which sees all of what it is shown at once.

Reads the published big-lama, a TorchScript file, and runs it in PyTorch; needs OpenCV, too. simple-lama-inpainting
0.1.2 publishes the file, but its package demands NumPy 1 and Pillow 9. So the file is loaded here, with that package's
steps: RGB as float32 / 255, the hole as 0 and 1, both padded ``symmetric`` to a multiple of 8, results cut to 8 bits.
The padding is cropped off again, which that package leaves on. What the network sees of an image is ours
(``lama.crop_holes``).

A TorchScript file is a program, and nothing shuts it in. It runs only if its SHA-256 is the published one, or the one
that the profile names; the bytes that were hashed are the bytes that run.

The network computes in float32, on a GPU too: cuFFT takes no bfloat16. PyTorch's just-in-time optimiser is left out: it
works anew on each size of input, for seconds.
"""

import hashlib
import io
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.errors import ModelError
from pairwright.schemas.removing import LamaConfig, RemovalsConfig
from pairwright.tasks.models.batches import MOST, Batches
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.models.inpainting import Hole, Pixels, Window
from pairwright.tasks.models.lama.crop_holes import HoleCrop, crop_hole, put_back
from pairwright.tasks.models.weights import (
    PublishedFile,
    absolute,
    check_revision,
    find_published,
    identify_files,
    loading,
    require_packages,
)

if TYPE_CHECKING:
    from torch import Tensor, device

FIELD = "removals.lama"
PUBLISHED = PublishedFile(
    field=FIELD,
    name="big-lama.pt",
    url="https://github.com/enesmsahin/simple-lama-inpainting/releases/download/v0.1.0/big-lama.pt",
    sha256="7ba7aa7ac37a4d41fdbbeba3a2af7ead18058552997e3a3cd1a3b2210c9e6b4c",
)
TRUSTED = {PUBLISHED.sha256, "344c77bbcb158f17dd143070d1e789f38a66c04202311ae3a258ef66667a9ea9"}
"""Hashes of the files that run without being asked about: the published one, and IOPaint's copy of big-lama."""
PIXELS_AT_ONCE = 1 << 26
"""Bound of a GPU's batch that is found by trying (ours): a pixel takes about 2 kB. A CPU takes one crop at a time,
unless the profile says otherwise: several are slower, and where its memory does not suffice, the process dies."""
PROBE_SIDE = 64
MOST_BYTES = 4 << 30
"""Of a file that is read as a whole; big-lama has 206 MB."""


@dataclass(frozen=True, kw_only=True)
class LamaInpainter:
    """Fill holes by LaMa; its weights are loaded once per process, when they are first needed."""

    config: RemovalsConfig

    @property
    def version(self) -> str:
        """Say which weights these are."""
        return f"LaMa {self.config.lama.revision or PUBLISHED.name}"

    def prepare(self, image: Pixels, hole: Hole, window: Window) -> HoleCrop:
        """Return the hole's crop; needs no weights."""
        return crop_hole(image, hole, window, context=self.config.context, max_side=self.config.max_side)

    def fill(self, prepared: Sequence[HoleCrop]) -> Iterator[Pixels]:
        """Yield the filled windows.

        Raises:
            ModelError: the weights are missing, do not run, or give no numbers; a single crop does not fit.
        """
        yield from _load(self.config.lama.model_dump_json(), self.config.batch_size).fill(prepared)


@dataclass(frozen=True, kw_only=True)
class Lama:
    """Be the network on its device."""

    network: Any
    device: "device"
    fixed: int = 0
    """Crops in a batch; 0: found by trying."""
    batches: dict[int, Batches] = field(default_factory=dict[int, Batches])
    """By the logarithm of a crop's area: what fits of small crops says little of large ones."""

    def fill(self, crops: Sequence[HoleCrop]) -> Iterator[Pixels]:
        """Yield the filled windows, in order; crops of one size go through the network together."""
        same: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
        for place, crop in enumerate(crops):
            same[crop.pixels.shape].append(place)
        filled: dict[int, Pixels] = {}
        for shape, places in same.items():
            made = self.sized(shape).each(self.run, [crops[place].pixels for place in places])
            filled.update(zip(places, made, strict=True))
        for place, crop in enumerate(crops):
            yield put_back(crop, filled.pop(place))

    def run(self, crops: Sequence[NDArray[np.uint8]]) -> list[Pixels]:
        """Return the ``(height, width, 3)`` pixels that the network makes of ``(height, width, 4)`` crops."""
        import torch

        plainly = torch.jit.optimized_execution(should_optimize=False)  # pyright: ignore[reportPrivateImportUsage]  (it is not listed)
        with torch.inference_mode(), plainly:
            seen = torch.from_numpy(np.stack(crops)).to(self.device).permute(0, 3, 1, 2).contiguous()
            made: Tensor = self.network(seen[:, :3].float() / 255, seen[:, 3:].float())
            if not bool(torch.isfinite(made).all()):
                raise ModelError(f"{FIELD}: the network gave pixels that are not finite")
            return list((made * 255).clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous().cpu().numpy())

    def sized(self, shape: Sequence[int]) -> Batches:
        """Return what cuts crops of a shape into batches."""
        area = shape[0] * shape[1]
        kind = area.bit_length()
        if kind not in self.batches:
            most = max(PIXELS_AT_ONCE >> kind, 1) if self.device.type != "cpu" else 1
            self.batches[kind] = Batches(self.fixed, min(most, MOST))
        return self.batches[kind]


def pin_lama(config: LamaConfig, *, download: bool) -> LamaConfig:
    """Return the configuration with the revision of the file that is on this machine, once it may run.

    Raises:
        ModelError: the file or packages are missing, it is not to be trusted, or not what the configuration names.
    """
    require_packages(FIELD, "torch", "cv2")
    path = _find(config, download=download)
    _read_trusted(config, path)
    pinned = {"revision": identify_files([path])}
    return config.model_copy(
        update={**pinned, "checkpoint": absolute(config.checkpoint)} if config.checkpoint else pinned
    )


def _find(config: LamaConfig, *, download: bool) -> Path:
    if not config.checkpoint:
        path = find_published(PUBLISHED, download=download)
    else:
        path = Path(config.checkpoint).expanduser()
        if not path.is_file():
            raise ModelError(f"{FIELD}.checkpoint: {path}: no such file")
    check_revision(FIELD, config.revision, identify_files([path]), path)
    return path


def _read_trusted(config: LamaConfig, path: Path) -> bytes:
    """Return a program; refuse a file that is none, or one that nobody vouches for. Nothing of it runs."""
    if path.stat().st_size > MOST_BYTES:
        raise ModelError(f"{FIELD}.checkpoint: {path} has more than {MOST_BYTES >> 30} GiB: it is no LaMa")
    data = path.read_bytes()
    if not _is_torchscript(data):
        raise ModelError(f"{FIELD}.checkpoint: {path} is no TorchScript file, as torch.jit.save writes it")
    sha256 = hashlib.sha256(data).hexdigest()
    if sha256 not in TRUSTED | {config.sha256.lower()}:
        raise ModelError(
            f"{FIELD}.checkpoint: {path} is a program, and not the published {PUBLISHED.name}: its SHA-256 is "
            f"{sha256}. If you know where it comes from, and trust it: --set {FIELD}.sha256={sha256}"
        )
    return data


def _is_torchscript(data: bytes) -> bool:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return False
    return any("/code/" in name for name in names) and any(name.endswith("/constants.pkl") for name in names)


@lru_cache(maxsize=1)
def _load(configuration: str, batch: int) -> Lama:
    """Load the program, and try it."""
    import torch

    config, device = LamaConfig.model_validate_json(configuration), choose_device()
    path = _find(config, download=False)
    data = _read_trusted(config, path)
    with loading(FIELD, path):
        network = torch.jit.load(io.BytesIO(data), map_location=device).eval()
    lama = Lama(network=network, device=device, fixed=batch)
    _try(lama, path)
    return lama


def _try(lama: Lama, path: Path) -> None:
    """Refuse a program that does not take two images with two masks and give two images."""
    crops = [np.full((PROBE_SIDE, PROBE_SIDE, 4), (value, value, value, 1), dtype=np.uint8) for value in (0, 255)]
    try:
        made = lama.run(crops)
    except ModelError:
        raise
    except Exception as error:  # a program may raise anything
        said = (str(error).strip().splitlines() or [""])[-1]
        raise ModelError(
            f"{FIELD}: {path} does not run as LaMa does, on images (n, 3, h, w) and masks (n, 1, h, w): "
            f"{type(error).__name__}: {said}"
        ) from error
    shapes = [one.shape for one in made]
    if shapes != [(PROBE_SIDE, PROBE_SIDE, 3)] * 2:
        raise ModelError(f"{FIELD}: {path} gives {shapes} for two images of {PROBE_SIDE} x {PROBE_SIDE} pixels")
