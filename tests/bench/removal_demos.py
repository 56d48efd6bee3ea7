"""Remove elements as public demonstrations do: the libraries, one after the other, in a loop over images and tags.

Two ways, both in inference mode, on all cores or the GPU (there by autocast in bfloat16, as ours), with warm models:

* ``ONE_TAG``: for each tag the detector (transformers' processor and model, with this one tag for a prompt),
  ``SamPredictor.set_image`` and ``predict`` for each box, and LaMa over the whole image, padded to a multiple of 8;
* ``ONE_PROMPT``: all tags in one prompt, the image encoded once; masks and holes one by one.

The image is decoded once, and each result saved as PNG at Pillow's fastest setting. RAM is in no library: its network
is ours, one image at a time. Boxes for SAM and masks for LaMa are those of the plan.
"""

import io
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pairwright.tasks.models.prepare_ahead import Seen
from pairwright.tasks.models.ram import RamTagger
from tests.bench.removal_models import Models
from tests.bench.removal_plan import Pixels, Planned

ONE_TAG, ONE_PROMPT = "one tag at a time", "one prompt, one encoding"
STEPS = ("decode", "tag", "detect", "segment", "remove")
BOX, TEXT = 0.25, 0.2
DILATE = 7
Corners = NDArray[np.float32]


@dataclass
class Found:
    """Hold what a way gives and how long its steps take."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    busy: float = 0.0
    """Seconds of CPU time."""
    tags: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    boxes: list[Corners] = field(default_factory=list[Corners])
    """Per image, ``(n, 4)`` corners of all boxes above the threshold, clipped to the image; where it has one prompt."""
    masks: list[list[Pixels]] = field(default_factory=list[list[Pixels]])


class Demo:
    """Hold the models; lives in a process of its own."""

    def __init__(self, models: Models) -> None:
        import torch
        from segment_anything import SamPredictor
        from transformers import GroundingDinoForObjectDetection, GroundingDinoProcessor

        from pairwright.tasks.models.sam import load_sam

        self.torch: Any = torch
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.ram = RamTagger(config=models.tagging.ram)
        self.squeeze = self.ram.prepare
        self.processor: Any = GroundingDinoProcessor.from_pretrained(models.detection.model)
        network: Any = GroundingDinoForObjectDetection.from_pretrained(models.detection.model)
        self.dino = network.eval().to(self.device)
        sam = load_sam(Path(models.segmentation.checkpoint), field="segmentation").to(self.device)
        self.sam = SamPredictor(sam)
        self.lama: Any = torch.jit.load(models.removals.lama.checkpoint, map_location=self.device).eval()

    def run(self, planned: Sequence[Planned], way: str) -> Found:
        """Go through the images."""
        found, start = Found(), time.process_time()
        with self.torch.inference_mode():
            for one in planned:
                self._run(one, way, found)
        found.busy = time.process_time() - start
        return found

    def _run(self, one: Planned, way: str, found: Found) -> None:
        with self._timed(found, "decode"):
            image = Image.open(io.BytesIO(one.image.image)).convert("RGB")
            pixels = np.asarray(image)
        with self._timed(found, "tag"):
            (tags,) = self.ram.tag([self.squeeze(Seen(pixels))])
        found.tags.append(tuple(tag.name for tag in tags))
        names = [tag.name for tag in one.tags.tags]
        if way == ONE_PROMPT:
            with self._timed(found, "detect"):
                found.boxes.append(self._detect(image, names))
            with self._timed(found, "segment"), self._fast():
                self.sam.set_image(pixels)
        masks: list[Pixels] = []
        for place, name in enumerate(names):
            if way == ONE_TAG:
                with self._timed(found, "detect"):
                    self._detect(image, [name])
                with self._timed(found, "segment"), self._fast():
                    self.sam.set_image(pixels)
            with self._timed(found, "segment"):
                masks.append(self._segment(one, place))
            with self._timed(found, "remove"):
                self._remove(pixels, one.pixels[place])
        found.masks.append(masks)

    def _detect(self, image: Image.Image, names: Sequence[str]) -> Corners:
        text = "".join(f"{name}. " for name in names).strip()
        given = self.processor(images=image, text=text, return_tensors="pt").to(self.device)
        with self._fast():
            made = self.dino(**given)
        (result,) = self.processor.post_process_grounded_object_detection(
            made, given.input_ids, threshold=BOX, text_threshold=TEXT, target_sizes=[image.size[::-1]]
        )
        return np.clip(result["boxes"].float().cpu().numpy(), 0, [*image.size, *image.size])

    def _segment(self, one: Planned, place: int) -> Pixels:
        """Return the union of the masks of a tag's boxes."""
        made: list[Pixels] = []
        for box in one.boxes.boxes:
            if box.tag == place:
                corners = np.array([box.x0, box.y0, box.x1, box.y1])
                masks, _, _ = self.sam.predict(box=corners, multimask_output=False)
                made.append(np.asarray(masks[0]))
        return np.logical_or.reduce(made)

    def _remove(self, pixels: NDArray[np.uint8], mask: Pixels) -> bytes:
        """Fill the dilated mask in the whole image, and encode that."""
        import cv2

        torch = self.torch
        hole = cv2.dilate(mask.astype(np.uint8), np.ones((2 * DILATE + 1, 2 * DILATE + 1), np.uint8))
        height, width = mask.shape
        pad = ((0, -height % 8), (0, -width % 8))
        seen = np.pad(pixels, (*pad, (0, 0)), mode="symmetric").transpose(2, 0, 1)[None].astype(np.float32) / 255
        where = np.pad(hole, pad, mode="symmetric")[None, None].astype(np.float32)
        made = self.lama(torch.from_numpy(seen).to(self.device), torch.from_numpy(where).to(self.device))
        shown = (made[0].permute(1, 2, 0).cpu().numpy() * 255).clip(0, 255).astype(np.uint8)[:height, :width]
        sink = io.BytesIO()
        Image.fromarray(shown).save(sink, "PNG", compress_level=1)
        return sink.getvalue()

    def _fast(self) -> Any:
        return self.torch.autocast(self.device, self.torch.bfloat16, enabled=self.device == "cuda")

    @contextmanager
    def _timed(self, found: Found, step: str) -> Generator[None]:
        start = time.perf_counter()
        yield
        if self.device == "cuda":
            self.torch.cuda.synchronize()
        found.seconds[step] += time.perf_counter() - start


def run_demo(models: Models, planned: Sequence[Planned], *, ways: Sequence[str], threads: int) -> dict[str, Found]:
    """Run some ways, warm; call it in a process of its own."""
    import torch

    torch.set_num_threads(threads)
    demo = Demo(models)
    runs: dict[str, Callable[[], Found]] = {}
    for way in ways:
        demo.run(planned[:1], way)
        runs[way] = lambda way=way: demo.run(planned, way)
    return {way: run() for way, run in runs.items()}
