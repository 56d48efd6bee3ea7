"""Write random checkpoints of RAM, Grounding DINO, SAM and LaMa in the published formats, in any size.

The architectures are the libraries' own; LaMa's, of which only the TorchScript file is published, is written here after
its paper (Suvorov et al., 2022): convolutions that halve the image three times, residual blocks of Fourier
convolutions, and as many that double it. ``FULL`` has the published sizes: of an image of 640 x 480 pixels, detector,
image encoder and inpainter take 1.1, 6.0 and 0.5 TFLOP. ``SMALL`` has about these proportions at a hundredth.
Needs PyTorch, transformers, segment-anything; writes up to 5 GB.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pairwright.schemas.removing import (
    DetectionConfig,
    LamaConfig,
    RamConfig,
    RemovalsConfig,
    SegmentationConfig,
    TaggingConfig,
)
from tests.fixtures.grounding_checkpoints import FIRST_WORD, WORDS, make_tokenizer
from tests.fixtures.lama_checkpoints import write_lama

PATCH, DECODER_WIDTH, TEXT_WIDTH, LAYERS = 4, 768, 512, 2
"""Of RAM: pixels of a patch, the decoder's width, that of a tag's vector, and its layers."""

NMS = 0.05
"""Random scores put hundreds of boxes over any threshold; so few overlap by less that a tag is left with some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RamSize:
    """Be the sizes of a RAM model: a Swin transformer, and a decoder that asks for each tag."""

    embed: int
    depths: tuple[int, ...]
    heads: tuple[int, ...]
    window: int
    tags: int

    @property
    def side(self) -> int:
        """Return the side of its images: the last stage has one window."""
        return PATCH * self.window << (len(self.depths) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamSize:
    """Be the sizes of a SAM model."""

    dim: int
    depth: int
    heads: int
    side: int
    every: int
    """Each so many-th block sees the whole image."""
    prompt: int
    """Width of the mask decoder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Be the sizes of all four models."""

    ram: RamSize
    swin: dict[str, Any]
    """Of Grounding DINO's backbone."""
    text: dict[str, Any]
    grounding: dict[str, Any]
    short: int
    """Shorter side of what the detector sees; the longer one is up to 5/3 of it."""
    sam: SamSize
    lama_width: int
    lama_blocks: int


SMALL = Sizes(
    ram=RamSize(embed=48, depths=(2, 2, 2, 2), heads=(2, 4, 8, 16), window=7, tags=200),
    swin={"embed_dim": 48, "depths": [2, 2, 2, 2], "num_heads": [2, 4, 8, 16], "window_size": 7},
    text={"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 512},
    grounding={
        **dict.fromkeys(("encoder_layers", "decoder_layers"), 2),
        **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 384),
        "d_model": 128,
        "num_queries": 300,
    },
    short=400,
    sam=SamSize(dim=384, depth=12, heads=6, side=512, every=4, prompt=64),
    lama_width=8,
    lama_blocks=8,
)
FULL = Sizes(
    ram=RamSize(embed=192, depths=(2, 2, 18, 2), heads=(6, 12, 24, 48), window=12, tags=4585),
    swin={"embed_dim": 128, "depths": [2, 2, 18, 2], "num_heads": [4, 8, 16, 32], "window_size": 12},
    text={"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
    grounding={},
    short=800,
    sam=SamSize(dim=1280, depth=32, heads=16, side=1024, every=8, prompt=256),
    lama_width=64,
    lama_blocks=18,
)
"""RAM (Swin-L), Grounding DINO base, SAM ViT-H, big-lama."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """Be the sections of a profile that name the written checkpoints."""

    tagging: TaggingConfig
    detection: DetectionConfig
    segmentation: SegmentationConfig
    removals: RemovalsConfig


def write_models(folder: Path, sizes: Sizes) -> Models:
    """Write all four, and say how a profile names them."""
    folder.mkdir(parents=True, exist_ok=True)
    lama = write_lama(folder / "lama.pt", Lama(sizes.lama_width, sizes.lama_blocks))
    return Models(
        tagging=TaggingConfig(taggers=("ram",), ram=write_ram(folder / "ram", sizes.ram)),
        detection=DetectionConfig(
            detector="grounding-dino", model=str(write_grounding(folder / "dino", sizes)), max_iou=NMS
        ),
        segmentation=SegmentationConfig(segmenter="sam", checkpoint=str(write_sam(folder / "sam.pth", sizes.sam))),
        removals=RemovalsConfig(
            inpainter="lama", dilate_pixels=7, lama=LamaConfig(checkpoint=str(folder / "lama.pt"), sha256=lama)
        ),
    )


def write_ram(folder: Path, size: RamSize) -> RamConfig:
    """Write a checkpoint with its lists; of the tags, about one in a hundred is above its threshold."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    weights = {name: _random(name, shape) for name, shape in ram_shapes(size)}
    torch.save({"model": weights}, folder / "ram.pth")
    (folder / "tags.txt").write_text("".join(f"thing {number}\n" for number in range(size.tags)))
    (folder / "thresholds.txt").write_text("0.68\n" * size.tags)
    names = ("ram.pth", "tags.txt", "thresholds.txt")
    paths = dict(zip(("checkpoint", "tags", "thresholds"), [str(folder / name) for name in names], strict=True))
    return RamConfig(**paths)


def _random(name: str, shape: tuple[int, ...]) -> Tensor:
    if "norm" in name.lower():
        return torch.ones(shape) if name.endswith("weight") else torch.zeros(shape)
    return torch.zeros(shape) if name.endswith("bias") else torch.randn(shape) / math.sqrt(shape[-1])


def ram_shapes(size: RamSize) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the published names of all tensors that the model uses, with their shapes."""
    yield "visual_encoder.patch_embed.proj.weight", (size.embed, 3, PATCH, PATCH)
    yield "visual_encoder.patch_embed.proj.bias", (size.embed,)
    yield from _norm("visual_encoder.patch_embed.norm", size.embed)
    for stage, (depth, heads) in enumerate(zip(size.depths, size.heads, strict=True)):
        width, layer = size.embed << stage, f"visual_encoder.layers.{stage}"
        for block in (f"{layer}.blocks.{number}" for number in range(depth)):
            yield f"{block}.attn.relative_position_bias_table", ((2 * size.window - 1) ** 2, heads)
            yield from _norm(f"{block}.norm1", width)
            yield from _norm(f"{block}.norm2", width)
            parts = {"attn.qkv": (3, 1), "attn.proj": (1, 1), "mlp.fc1": (4, 1), "mlp.fc2": (1, 4)}
            for name, (out, taken) in parts.items():
                yield from _linear(f"{block}.{name}", out * width, taken * width)
        if stage + 1 < len(size.depths):
            yield from _norm(f"{layer}.downsample.norm", 4 * width)
            yield f"{layer}.downsample.reduction.weight", (2 * width, 4 * width)
    last = size.embed << (len(size.depths) - 1)
    yield from _norm("visual_encoder.norm", last)
    yield from _linear("image_proj", TEXT_WIDTH, last)
    yield from _linear("wordvec_proj", DECODER_WIDTH, TEXT_WIDTH)
    yield from _linear("fc", 1, DECODER_WIDTH)
    yield "label_embed", (size.tags, TEXT_WIDTH)
    for layer in (f"tagging_head.encoder.layer.{number}" for number in range(LAYERS)):
        across = f"{layer}.crossattention"
        for name, taken in {"self.query": DECODER_WIDTH, "self.key": TEXT_WIDTH, "self.value": TEXT_WIDTH,
                            "output.dense": DECODER_WIDTH}.items():  # fmt: skip
            yield from _linear(f"{across}.{name}", DECODER_WIDTH, taken)
        yield from _linear(f"{layer}.intermediate.dense", 4 * DECODER_WIDTH, DECODER_WIDTH)
        yield from _linear(f"{layer}.output.dense", DECODER_WIDTH, 4 * DECODER_WIDTH)
        yield from _norm(f"{across}.output.LayerNorm", DECODER_WIDTH)
        yield from _norm(f"{layer}.output.LayerNorm", DECODER_WIDTH)


def _linear(name: str, out: int, taken: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (out, taken)
    yield f"{name}.bias", (out,)


def _norm(name: str, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (width,)
    yield f"{name}.bias", (width,)


def make_grounding(sizes: Sizes) -> Any:
    """Return a random Grounding DINO."""
    from transformers import BertConfig, GroundingDinoConfig, GroundingDinoForObjectDetection, SwinConfig

    torch.manual_seed(2)
    swin: Any = {**sizes.swin, "out_indices": [2, 3, 4], "drop_path_rate": 0.0}
    backbone: Any = SwinConfig(**swin)
    text: Any = BertConfig(**sizes.text, vocab_size=FIRST_WORD + len(WORDS))
    return GroundingDinoForObjectDetection(
        GroundingDinoConfig(backbone_config=backbone, text_config=text, **sizes.grounding)
    ).eval()


def write_grounding(folder: Path, sizes: Sizes) -> Path:
    """Write the model, with the small vocabulary of the tests."""
    from transformers import GroundingDinoImageProcessor, GroundingDinoProcessor

    make_grounding(sizes).save_pretrained(folder)
    size = {"shortest_edge": sizes.short, "longest_edge": sizes.short * 5 // 3}
    GroundingDinoProcessor(GroundingDinoImageProcessor(size=size), make_tokenizer()).save_pretrained(folder)
    return folder


def make_sam(size: SamSize) -> Any:
    """Return a random SAM, built as the package builds its own."""
    from segment_anything.modeling import ImageEncoderViT, MaskDecoder, PromptEncoder, Sam, TwoWayTransformer

    torch.manual_seed(3)
    grid, norm = size.side // 16, partial(nn.LayerNorm, eps=1e-6)
    encoder = ImageEncoderViT(
        img_size=size.side, patch_size=16, embed_dim=size.dim, depth=size.depth, num_heads=size.heads, mlp_ratio=4,
        norm_layer=norm, out_chans=size.prompt, use_rel_pos=True, window_size=14,  # pyright: ignore[reportArgumentType]  (a partial is no type)
        global_attn_indexes=tuple(range(size.every - 1, size.depth, size.every)),
    )  # fmt: skip
    prompts = PromptEncoder(
        embed_dim=size.prompt,
        image_embedding_size=(grid, grid),
        input_image_size=(size.side, size.side),
        mask_in_chans=16,
    )
    transformer = TwoWayTransformer(depth=2, embedding_dim=size.prompt, num_heads=8, mlp_dim=8 * size.prompt)
    decoder = MaskDecoder(transformer_dim=size.prompt, transformer=transformer)
    return Sam(encoder, prompts, decoder).eval()


def write_sam(path: Path, size: SamSize) -> Path:
    """Write the model's weights as they are published."""
    torch.save(make_sam(size).state_dict(), path)
    return path


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
        self.kept = nn.Conv2d(self.near, self.near, 3, padding=1, padding_mode="reflect", bias=False)
        self.out = nn.Conv2d(self.near, far, 3, padding=1, padding_mode="reflect", bias=False)
        self.back = nn.Conv2d(far, self.near, 3, padding=1, padding_mode="reflect", bias=False)
        self.whole = Spectrum(far)
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


def _conv(taken: int, made: int, kernel: int, stride: int = 1) -> nn.Sequential:
    pad = kernel // 2
    conv = nn.Conv2d(taken, made, kernel, stride, padding=pad, padding_mode="reflect" if pad else "zeros", bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(made), nn.ReLU())


def _deconv(taken: int, made: int) -> nn.Sequential:
    conv = nn.ConvTranspose2d(taken, made, 3, stride=2, padding=1, output_padding=1)
    return nn.Sequential(conv, nn.BatchNorm2d(made), nn.ReLU())
