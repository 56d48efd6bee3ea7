"""What the build's own models take of a GPU beside their weights, at the default batch: published sizes, no numbers."""

import numpy as np
import pytest
import torch

from pairwright.schemas.rows import Box
from pairwright.tasks.models import grounding_dino, lama, ram, sam
from pairwright.tasks.models.batches import MOST, Batches, Encoder
from tests.fixtures.big_lama import BigLama
from tests.fixtures.held_bytes import HeldBytes, faked
from tests.fixtures.published_files import describe, tensors_of
from tests.on_a_gpu.fake_gpu import FakeGpu

STAGES = {"depths": [2, 2, 18, 2], "num_heads": [4, 8, 16, 32]}


def encode(network, side, most=MOST):
    """Return what encodes as many squares as go at once."""
    batches = Batches(0, most=most)
    encoder = Encoder(network=network, device=torch.device("cuda"), batches=batches)
    return lambda: encoder.encode([np.zeros((side, side, 3), dtype=np.uint8)] * batches.size)


def numbers(squares):
    return squares.permute(0, 3, 1, 2).float().div(255)


def clip(gpu):
    import open_clip

    with torch.device("meta"):
        tower = open_clip.CLIP(**open_clip.get_model_config("ViT-L-14-quickgelu")).visual.eval()
    tower = faked(tower.requires_grad_(requires_grad=False), gpu, "cuda")
    return tower, encode(lambda squares: tower(numbers(squares)), 224)


def dinov2(gpu):
    from transformers import Dinov2Config, Dinov2Model

    config = Dinov2Config(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, image_size=518)
    with torch.device("meta"):
        model = Dinov2Model(config).eval()
    model = faked(model, gpu, "cuda")
    return model, encode(lambda squares: model(numbers(squares)).last_hidden_state[:, 0], 224)


def segment(gpu):
    from segment_anything import SamPredictor, sam_model_registry

    with torch.device("meta"):
        model = sam_model_registry["vit_h"]().eval()
    predictor = SamPredictor(faked(model, gpu, "cuda"))
    image = sam.Fitted(np.zeros((768, 1024, 3), dtype=np.uint8), (768, 1024))
    boxes = [Box(tag=0, score=1.0, x0=3.0, y0=4.0, x1=90.0, y1=80.0)] * 8

    def work():
        with torch.inference_mode():
            return list(sam._masks(predictor, image, boxes))

    return model, work


def detect(gpu):
    from transformers import GroundingDinoConfig, GroundingDinoForObjectDetection, SwinConfig

    swin = SwinConfig(
        window_size=12, image_size=384, embed_dim=128, out_features=["stage2", "stage3", "stage4"], **STAGES
    )
    with torch.device("meta"):
        model = GroundingDinoForObjectDetection(GroundingDinoConfig(backbone_config=swin)).eval()
    faked(model, gpu, "cuda")
    count = grounding_dino.MAX_IMAGES

    def work():
        with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
            seen = torch.zeros(count, 3, 800, 1066, device="cuda")
            ids = torch.ones(count, 256, dtype=torch.long, device="cuda")
            return model(pixel_values=seen, input_ids=ids, token_type_ids=ids, attention_mask=ids)

    return model, work


def tag(gpu):
    shapes = {name: shape for name, (_, shape) in tensors_of(describe("ram")).items()}
    with torch.device("meta"):
        swin = ram.build_swin(shapes).eval()
        decoder = {name: torch.empty(shape) for name, shape in shapes.items() if not ram.UNUSED.match(name)}
    faked(swin.requires_grad_(requires_grad=False), gpu, "cuda")
    holder = torch.nn.Module()
    for name, tensor in decoder.items():
        if not name.startswith(ram.SWIN):
            holder.register_buffer(name.replace(".", "/"), tensor)
    faked(holder, gpu, "cuda")
    decoder = {name.replace("/", "."): tensor for name, tensor in holder.named_buffers()}

    def probabilities(squares):
        patches = swin.forward_features(numbers(squares)).flatten(1, 2)
        seen = torch.cat([patches.mean(dim=1, keepdim=True), patches], dim=1)
        return ram.tag_logits(decoder, seen, 4585).float().sigmoid()

    return torch.nn.ModuleList([swin, holder]), encode(probabilities, 384, ram.MAX_IMAGES)


def fill(gpu):
    """LaMa: crops of the longest side, 3:4."""
    with torch.device("meta"):
        network = BigLama().eval().requires_grad_(requires_grad=False)
    faked(network, gpu, "cuda")
    return network, lambda: lama.run_lama(network, [np.zeros((768, 1024, 4), dtype=np.uint8)] * lama.MAX_CROPS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "models", "batch"),
    [
        ("embeddings", (clip, dinov2), MOST),
        ("tags", (tag,), ram.MAX_IMAGES),
        ("boxes", (detect,), grounding_dino.MAX_IMAGES),
        ("masks", (segment,), 1),
        ("removals", (fill,), lama.MAX_CROPS),
    ],
)
def test_activations_are_those_of_the_table(stage, models, batch, fake_gpu: FakeGpu) -> None:
    found = []
    for make in models:
        model, work = make(fake_gpu)
        with fake_gpu.computing(), HeldBytes(model) as held:
            work()
        found.append(held.most)
    written = describe("encoders")[stage]
    assert written["batch"] == batch
    assert max(found) == pytest.approx(written["activations"], rel=0.02)
