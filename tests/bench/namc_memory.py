"""Say what memory NAMC's pre-training takes at the paper's size, without having it: tensors have sizes, no values.

Run with ``python -m tests.bench.namc_memory 512 64``: rows that go through the model at once. Every storage that a
training step makes is counted while it lives (PyTorch's FakeTensorMode), so that the peak is what an allocator without
waste needs; what a device's own libraries take is not in it. A batch of 512 rows in parts of 64 has the peak of 64.
"""

import argparse
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import open_clip
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from pairwright.schemas.namc import NamcConfig
from pairwright.tasks.models.namc.namc import Described, Namc
from pairwright.tasks.models.namc.noise import Masks, NoiseIdentifier
from pairwright.tasks.models.namc.sizes import NamcSizes
from pairwright.tasks.models.namc.words import learnt_words
from pairwright.tasks.training.namc.accumulate import Accumulator, Part, Whole
from pairwright.tasks.training.namc.saved import Captioner

GIB = 1 << 30
TOKENS = 64
"""Of a description, start and end included; NAMC's template has about 14 words beside its two halves."""
READ, SIDE = 77, 224
CLIP, EMBEDDING = "ViT-B-16", 512


class Living(TorchDispatchMode):
    """Count the bytes of all tensors that live, and the most that there were."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """Run an operation, and count what it returns."""
        found = func(*args, **(kwargs or {}))
        for tensor in tree_iter(found):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor.untyped_storage())
        return found

    def _count(self, storage: torch.UntypedStorage) -> None:
        number, size = StorageWeakRef(storage).cdata, storage.nbytes()
        if number in self._known:  # a view, or what was changed in place
            return
        self._known.add(number)
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._gone, number, size)

    def _gone(self, number: int, size: int) -> None:
        self._known.discard(number)
        self.now -= size


def measure(rows: int, dtype: torch.dtype) -> tuple[int, int]:
    """Return the bytes of weights, gradients and Adam's moments, and the peak of a step with so many rows at once."""
    words = learnt_words(["a"], size=40)
    with FakeTensorMode(), Living() as living:
        model = Namc(NamcSizes(), NoiseIdentifier(_clip(), width=NamcSizes().width)).train()
        optimiser = torch.optim.Adam(model.parameters())
        autocast = torch.autocast("cpu", dtype=dtype, enabled=dtype is not torch.float32)
        accumulator = Accumulator(Captioner(model, words), NamcConfig(), rows, autocast)
        batch, part, same = _batch(rows), _part(rows), torch.zeros(rows, 2, dtype=torch.long)
        # Slopes as of a batch in parts; the means' counts are given, since values cannot be asked for.
        slope = torch.zeros(2, rows, EMBEDDING)
        for _ in range(2):  # the second step has Adam's moments
            living.most = living.now
            optimiser.zero_grad()
            with accumulator.autocast:
                losses = accumulator.losses(batch, same, part, Whole(tokens=1, places=1, slopes=(slope, slope)))
            torch.stack(list(losses.values())).sum().backward()
            del losses
            optimiser.step()
        held = sum(4 * weight.nbytes for weight in model.parameters() if weight.grad is not None)
        return held, living.most


def _clip() -> open_clip.CLIP:
    config = open_clip.get_model_config(CLIP) or {}
    return open_clip.CLIP(**{name: config[name] for name in ("embed_dim", "vision_cfg", "text_cfg")})


def _batch(rows: int) -> Described:
    sizes = NamcSizes()
    return Described(
        pixels=torch.zeros(rows, 2, 3, SIDE, SIDE),
        features=torch.zeros(rows, 2, sizes.places, sizes.features, dtype=torch.float16),
        codes=torch.zeros(rows, 2, sizes.places, dtype=torch.long),
        tokens=torch.zeros(rows, 2, READ, dtype=torch.long),
        words=torch.zeros(rows, 2, READ, dtype=torch.long),
        written=torch.zeros(rows, TOKENS, dtype=torch.long),
        numbers=torch.zeros(rows, TOKENS, dtype=torch.long),
    )


def _part(rows: int) -> Part:
    masks = Masks(*(torch.zeros(2 * rows, size, dtype=torch.bool) for size in (NamcSizes().places, READ)))
    return Part(0, rows, masks, torch.zeros(rows, TOKENS - 1, dtype=torch.long), 0)


def main() -> None:
    """Print a line per number of rows and precision."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=int, nargs="*", default=[32, 64, 128, 512])
    for rows in parser.parse_args().rows:
        for dtype in (torch.bfloat16, torch.float32):
            held, most = measure(rows, dtype)
            name = str(dtype).removeprefix("torch.")
            print(f"{rows:4} rows at once, {name:8}: {most / GIB:6.1f} GiB, of which {held / GIB:.1f} are weights, "
                  "gradients and Adam's moments", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
