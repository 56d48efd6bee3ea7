"""Remove elements as public demonstrations do: the libraries, one after the other, in a loop over images and tags.

For each tag the detector (transformers' processor and model, with this one tag for a prompt),
``SamPredictor.set_image`` and ``predict`` for each box, and LaMa over the whole image, padded to a multiple of 8; in
inference mode, on a GPU or all cores, with warm models. The image is decoded once, and each result saved as PNG at
Pillow's fastest setting. Boxes for SAM and masks for LaMa are those of the plan.
"""

import io
import time
from collections import defaultdict
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tests.bench.removal_models import Models
from tests.bench.removal_plan import Pixels, Planned

BOX, TEXT, DILATE = 0.25, 0.2, 7


@dataclass
class Found:
    """Hold what the loop gives and how long its steps take."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    busy: float = 0.0
    """Seconds of CPU time."""
    masks: list[list[Pixels]] = field(default_factory=list[list[Pixels]])


class Demo:
    """Hold the models; lives in a process of its own."""

    def __init__(self, models: Models) -> None:
        import torch
        from segment_anything import SamPredictor
        from transformers import GroundingDinoForObjectDetection, GroundingDinoProcessor

        from pairwright.tasks.models.devices import choose_device
        from pairwright.tasks.models.sam import load_sam

        self.torch: Any = torch
        self.device = choose_device()
        self.processor: Any = GroundingDinoProcessor.from_pretrained(models.detection.model)
        network: Any = GroundingDinoForObjectDetection.from_pretrained(models.detection.model)
        self.dino = network.eval().to(self.device)
        self.sam = SamPredictor(load_sam(Path(models.segmentation.checkpoint), field="segmentation").to(self.device))
        self.lama: Any = torch.jit.load(models.removals.lama.checkpoint, map_location=self.device).eval()

    def run(self, planned: Sequence[Planned]) -> Found:
        """Go through the images."""
        found, start = Found(), time.process_time()
        with self.torch.inference_mode():
            for one in planned:
                self._run(one, found)
        found.busy = time.process_time() - start
        return found

    def _run(self, one: Planned, found: Found) -> None:
        with _timed(found, "detect"):
            image = Image.open(io.BytesIO(one.image.image)).convert("RGB")
            pixels = np.asarray(image)
        masks: list[Pixels] = []
        for place, tag in enumerate(one.tags.tags):
            with _timed(found, "detect"):
                self._detect(image, tag.name)
            with _timed(found, "segment"):
                self.sam.set_image(pixels)
                masks.append(self._segment(one, place))
            with _timed(found, "remove"):
                self._remove(pixels, one.pixels[place])
        found.masks.append(masks)

    def _detect(self, image: Image.Image, name: str) -> None:
        given = self.processor(images=image, text=f"{name}.", return_tensors="pt").to(self.device)
        self.processor.post_process_grounded_object_detection(
            self.dino(**given), given.input_ids, threshold=BOX, text_threshold=TEXT, target_sizes=[image.size[::-1]]
        )

    def _segment(self, one: Planned, place: int) -> Pixels:
        """Return the union of the masks of a tag's boxes."""
        boxes = [np.array([box.x0, box.y0, box.x1, box.y1]) for box in one.boxes.boxes if box.tag == place]
        return np.logical_or.reduce([self.sam.predict(box=box, multimask_output=False)[0][0] for box in boxes])

    def _remove(self, pixels: NDArray[np.uint8], mask: Pixels) -> None:
        """Fill the dilated mask in the whole image, and encode that."""
        import cv2

        torch = self.torch
        hole = cv2.dilate(mask.astype(np.uint8), np.ones((2 * DILATE + 1, 2 * DILATE + 1), np.uint8))
        height, width = mask.shape
        pad = ((0, -height % 8), (0, -width % 8))
        seen = np.pad(pixels, (*pad, (0, 0)), mode="symmetric").transpose(2, 0, 1)[None].astype(np.float32) / 255
        where = np.pad(hole, pad, mode="symmetric")[None, None].astype(np.float32)
        made = self.lama(*(torch.from_numpy(given).to(self.device) for given in (seen, where)))
        shown = (made[0].permute(1, 2, 0).cpu().numpy() * 255).clip(0, 255).astype(np.uint8)[:height, :width]
        Image.fromarray(shown).save(io.BytesIO(), "PNG", compress_level=1)


@contextmanager
def _timed(found: Found, step: str) -> Generator[None]:
    start = time.perf_counter()
    yield
    found.seconds[step] += time.perf_counter() - start


def run_demo(models: Models, planned: Sequence[Planned], *, threads: int) -> Found:
    """Run the loop, warm; call it in a process of its own."""
    import torch

    torch.set_num_threads(threads)
    demo = Demo(models)
    demo.run(planned[:1])
    return demo.run(planned)
