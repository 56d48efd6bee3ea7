"""Write random checkpoints of Grounding DINO, SAM and LaMa in the published formats, at a hundredth of their size.

The architectures are the libraries' own; LaMa's, of which only the TorchScript file is published, is written here after
its paper (Suvorov et al., 2022): convolutions that halve the image three times, residual blocks of Fourier
convolutions, and as many that double it. At the published sizes detector, image encoder and inpainter take 1.1, 6.0 and
0.5 TFLOP of an image of 640 x 480 pixels; here about these proportions. Needs PyTorch, transformers, segment-anything.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pairwright.schemas.removing import DetectionConfig, LamaConfig, RemovalsConfig, SegmentationConfig
from tests.fixtures.grounding_checkpoints import FIRST_WORD, WORDS, make_tokenizer
from tests.fixtures.lama_checkpoints import write_lama

NMS = 0.05
"""Random scores put hundreds of boxes over any threshold; so few overlap by less that a tag is left with some."""
SWIN = {"embed_dim": 48, "depths": [2, 2, 2, 2], "num_heads": [2, 4, 8, 16], "window_size": 7}
TEXT = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 512}
GROUNDING: dict[str, Any] = {
    "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 384, "decoder_ffn_dim": 384, "d_model": 128,
    "num_queries": 300,
}  # fmt: skip
SIDES = {"shortest_edge": 400, "longest_edge": 666}
SAM_SIDE, SAM_WIDTH, SAM_DEPTH, SAM_PROMPT = 512, 384, 12, 64
LAMA_WIDTH, LAMA_BLOCKS = 8, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """Be the sections of a profile that name the written checkpoints."""

    detection: DetectionConfig
    segmentation: SegmentationConfig
    removals: RemovalsConfig


def write_models(folder: Path) -> Models:
    """Write all three, and say how a profile names them."""
    lama = write_lama(folder / "lama.pt", Lama(LAMA_WIDTH, LAMA_BLOCKS))
    torch.save(make_sam().state_dict(), folder / "sam.pth")
    return Models(
        detection=DetectionConfig(detector="grounding-dino", model=write_grounding(folder / "dino"), max_iou=NMS),
        segmentation=SegmentationConfig(segmenter="sam", checkpoint=str(folder / "sam.pth")),
        removals=RemovalsConfig(
            inpainter="lama", dilate_pixels=7, lama=LamaConfig(checkpoint=str(folder / "lama.pt"), sha256=lama)
        ),
    )


def write_grounding(folder: Path) -> str:
    """Write a random Grounding DINO, with the small vocabulary of the tests."""
    from transformers import (
        BertConfig,
        GroundingDinoConfig,
        GroundingDinoForObjectDetection,
        GroundingDinoImageProcessor,
        GroundingDinoProcessor,
        SwinConfig,
    )

    torch.manual_seed(2)
    backbone: Any = SwinConfig(**SWIN, out_indices=[2, 3, 4], drop_path_rate=0.0)
    text: Any = BertConfig(**TEXT, vocab_size=FIRST_WORD + len(WORDS))
    config = GroundingDinoConfig(backbone_config=backbone, text_config=text, **GROUNDING)
    GroundingDinoForObjectDetection(config).save_pretrained(folder)
    GroundingDinoProcessor(GroundingDinoImageProcessor(size=SIDES), make_tokenizer()).save_pretrained(folder)
    return str(folder)


def make_sam() -> Any:
    """Return a random SAM, built as the package builds its own; each fourth block sees the whole image."""
    from segment_anything.modeling import ImageEncoderViT, MaskDecoder, PromptEncoder, Sam, TwoWayTransformer

    torch.manual_seed(3)
    grid, norm = SAM_SIDE // 16, partial(nn.LayerNorm, eps=1e-6)
    encoder = ImageEncoderViT(
        img_size=SAM_SIDE, patch_size=16, embed_dim=SAM_WIDTH, depth=SAM_DEPTH, num_heads=6, mlp_ratio=4,
        norm_layer=norm, out_chans=SAM_PROMPT, use_rel_pos=True, window_size=14,  # pyright: ignore[reportArgumentType]  (a partial is no type)
        global_attn_indexes=tuple(range(3, SAM_DEPTH, 4)),
    )  # fmt: skip
    prompts = PromptEncoder(
        embed_dim=SAM_PROMPT, image_embedding_size=(grid, grid), input_image_size=(SAM_SIDE, SAM_SIDE), mask_in_chans=16
    )
    transformer = TwoWayTransformer(depth=2, embedding_dim=SAM_PROMPT, num_heads=8, mlp_dim=8 * SAM_PROMPT)
    return Sam(encoder, prompts, MaskDecoder(transformer_dim=SAM_PROMPT, transformer=transformer)).eval()


class Spectrum(nn.Module):
    """Convolve the whole image: by 1 x 1 convolutions of its Fourier transform."""

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        self.before = _conv(width, half, 1)
        self.inside = _conv(2 * half, 2 * half, 1)
        self.after = nn.Conv2d(half, width, 1, bias=False)

    def forward(self, seen: Tensor) -> Tensor:
        """Return as many channels of the same size."""
        seen = self.before(seen)
        waves = torch.fft.rfftn(seen, dim=(-2, -1), norm="ortho")
        mixed = self.inside(torch.cat([waves.real, waves.imag], dim=1))
        real, imaginary = mixed.chunk(2, dim=1)
        whole = torch.fft.irfftn(torch.complex(real, imaginary), s=seen.shape[-2:], dim=(-2, -1), norm="ortho")
        return self.after(seen + whole)


class Fourier(nn.Module):
    """Look around each pixel, and at the whole image: a quarter of the channels are local."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.near = width // 4
        far = width - self.near
        self.kept, self.out = _plain(self.near, self.near), _plain(self.near, far)
        self.back, self.whole = _plain(far, self.near), Spectrum(far)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, seen: Tensor) -> Tensor:
        """Return as many channels of the same size."""
        near, far = seen[:, : self.near], seen[:, self.near :]
        both = torch.cat([self.kept(near) + self.back(far), self.out(near) + self.whole(far)], dim=1)
        return torch.relu(self.norm(both))


class Block(nn.Module):
    """Be one residual block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.steps = nn.Sequential(Fourier(width), Fourier(width))

    def forward(self, seen: Tensor) -> Tensor:
        """Return as many channels of the same size."""
        return seen + self.steps(seen)


class Lama(nn.Module):
    """Fill holes: ``(n, 3, h, w)`` images and ``(n, 1, h, w)`` holes, sides that are multiples of 8."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        wide = 8 * width
        self.steps = nn.Sequential(
            _conv(4, width, 7),
            *(_conv(width << n, width << (n + 1), 3, stride=2) for n in range(3)),
            *(Block(wide) for _ in range(blocks)),
            *(_deconv(wide >> n, wide >> (n + 1)) for n in range(3)),
            nn.Conv2d(width, 3, 7, padding=3, padding_mode="reflect"),
            nn.Sigmoid(),
        )

    def forward(self, image: Tensor, mask: Tensor) -> Tensor:
        """Return the images with their holes filled."""
        filled = self.steps(torch.cat([image * (1 - mask), mask], dim=1))
        return mask * filled + (1 - mask) * image


def _plain(taken: int, made: int, kernel: int = 3, stride: int = 1) -> nn.Conv2d:
    pad = kernel // 2
    mode = "reflect" if pad else "zeros"
    return nn.Conv2d(taken, made, kernel, stride, padding=pad, padding_mode=mode, bias=False)


def _conv(taken: int, made: int, kernel: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(_plain(taken, made, kernel, stride), nn.BatchNorm2d(made), nn.ReLU())


def _deconv(taken: int, made: int) -> nn.Sequential:
    conv = nn.ConvTranspose2d(taken, made, 3, stride=2, padding=1, output_padding=1)
    return nn.Sequential(conv, nn.BatchNorm2d(made), nn.ReLU())
