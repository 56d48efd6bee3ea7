"""Encoders of the retriever: pairs of images and texts as unit vectors in one space.

``heads``, the default: small trainable heads on precomputed vectors of images and texts (ours). A
pair is ``[f1, f2, f2 - f1, f1 * f2]`` of its images' vectors, a text its own vector, all scaled to
numbers of about 1; two layers for pairs and one for texts map them into one space, where their
cosine is the score. A scale of 100 and a temperature of 2 suit CLIP, whose cosines differ by
hundredths. New heads fill the whole sphere, and one text would get nearly all of q. So their
vectors have a constant part, and only ``SPREAD`` of a cosine varies (ours): q then starts with 80 %
of the uniform entropy on descriptions of random scenes; without it, with 2 % on rendered ones.

``clip4idc``: a CLIP that sees both images at once (Guo et al. 2022). The first three quarters of
its vision layers (9 of 12) see each image alone, the others the tokens of both, after an image
embedding, a position embedding and a layer norm; a pair is the mean of the two class tokens. Texts
go through CLIP's text transformer. The retriever's rewards train both towers, CLIP's weights at a
thousandth of the new ones' rate, as CLIP4IDC does. For ViT-B/32, a batch of 4 and 128 shared
candidates, a step is about 2.5 TFLOP, and 150 M weights with Adam's moments and gradients are 2.4
GB; heads need 0.05 GFLOP for a pair. Needs PyTorch, and open_clip for the second.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from pairwright.schemas.encoder_config import ClipConfig
from pairwright.schemas.errors import ModelError
from pairwright.tasks.models import open_clip_embedder as clips
from pairwright.tasks.training.retriever.candidate_pool import Places
from pairwright.tasks.training.retriever.material import Features

BLOCKS = 4
SPREAD = 0.2  # cosines lie between 1 - 2 SPREAD and 1


class Heads(nn.Module):
    """Heads that map pairs and texts into one space."""

    def __init__(
        self,
        image_size: int,
        text_size: int,
        width: int,
        *,
        seed: int,
    ) -> None:
        """Create new heads, determined by the seed alone."""
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.pair = nn.Sequential(
                nn.Linear(BLOCKS * image_size, width), nn.GELU(), nn.Linear(width, width)
            )
            self.text = nn.Linear(text_size, width)
        self.image_scale = float(image_size) ** 0.5
        self.text_scale = float(text_size) ** 0.5

    def encode_pairs(self, vectors: Tensor) -> Tensor:
        """Return ``(B, width + 1)`` unit vectors of ``(B, 2, d)`` image vectors."""
        first, second = (vectors * self.image_scale).unbind(1)
        parts = [first, second, second - first, first * second]
        return _into_cone(self.pair(torch.cat(parts, dim=-1)))

    def texts(self, vectors: Tensor) -> Tensor:
        """Return ``(N, width + 1)`` unit vectors of ``(N, d)`` text vectors."""
        return _into_cone(self.text(vectors * self.text_scale))


def _into_cone(vectors: Tensor) -> Tensor:
    """Return unit vectors with an added constant: cosines become 1 - SPREAD (1 - cosine)."""
    free = functional.normalize(vectors, dim=-1) * SPREAD**0.5
    return functional.pad(free, (0, 1), value=(1 - SPREAD) ** 0.5)


class HeadsEncoder:
    """Encoder of rows and texts by precomputed vectors."""

    wants_pixels = False  # whether ``pairs`` reads images

    def __init__(
        self,
        network: Heads,
        features: Features,
        device: torch.device,
    ) -> None:
        self.network = network.to(device)
        self._features = features
        self._device = device
        image_size, text_size = features.vector_lengths
        self.about = {
            "encoder": "heads",
            "vectors": features.made_by,
            "image_size": str(image_size),
            "text_size": str(text_size),
            "width": str(network.text.out_features),
        }
        """Everything needed to create the same network again."""

    def encode_pairs(self, places: Places) -> Tensor:
        """Return ``(B, width + 1)`` unit vectors."""
        vectors = torch.from_numpy(self._features.pair_vectors(places))
        return self.network.encode_pairs(vectors.to(self._device))

    def texts(self, ids: Places) -> Tensor:
        """Return ``(N, width + 1)`` unit vectors."""
        vectors = torch.from_numpy(self._features.text_vectors(ids))
        return self.network.texts(vectors.to(self._device))

    def groups(self, rate: float) -> list[dict[str, Any]]:
        """Return the optimiser's parameter groups."""
        return [{"params": list(self.network.parameters()), "lr": rate}]


ALONE = 0.75  # share of the layers that see one image (9 of 12)
CLIP_SHARE = 1e-3  # CLIP4IDC's ``coef_lr``
ReadImages = Callable[[int], Sequence[NDArray[np.uint8]]]  # returns the decoded images of a row


class Clip4Idc(nn.Module):
    """CLIP's layers on pairs; ``clip`` is a model of open_clip."""

    def __init__(self, clip: Any, *, seed: int) -> None:
        """Add the new weights, initialised as CLIP's embeddings and determined by the seed."""
        super().__init__()
        visual = clip.visual
        if not clips.has_class_token(visual) or not visual.transformer.batch_first:
            kind = type(visual).__name__
            raise ModelError(
                f"{clips.FIELD}: adpo.encoder=clip4idc needs a ViT of CLIP's form, not a {kind}"
            )
        if len(visual.transformer.resblocks) < 2:
            raise ModelError(
                f"{clips.FIELD}: adpo.encoder=clip4idc needs an image tower with two layers or more"
            )
        self.clip = clip
        self.alone = max(1, round(ALONE * len(visual.transformer.resblocks)))
        tokens, width = visual.positional_embedding.shape
        generator = torch.Generator().manual_seed(seed)

        def fresh(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, generator=generator) * width**-0.5)

        self.first = fresh(width)
        self.second = fresh(width)
        self.joint_positions = fresh(2 * tokens, width)
        self.middle = nn.LayerNorm(width)

    def encode_pairs(self, pixels: Tensor) -> Tensor:
        """Return ``(B, d)`` unit vectors of ``(B, 2, 3, h, w)`` pixels."""
        visual = self.clip.visual
        tokens = visual._embeds(pixels.flatten(0, 1))  # open_clip has no public name for it
        blocks = visual.transformer.resblocks
        for block in blocks[: self.alone]:
            tokens = block(tokens)
        first, second = tokens.unflatten(0, (-1, 2)).unbind(1)
        both = torch.cat([first + self.first, second + self.second], dim=1)
        both = self.middle(both + self.joint_positions)
        for block in blocks[self.alone :]:
            both = block(both)
        classes = visual.ln_post(both[:, [0, first.shape[1]]])
        return functional.normalize((classes @ visual.proj).mean(1), dim=-1)

    def texts(self, tokens: Tensor) -> Tensor:
        """Return ``(N, d)`` unit vectors of ``(N, length)`` tokens."""
        return functional.normalize(self.clip.encode_text(tokens), dim=-1)


class Clip4IdcEncoder:
    """Encoder of rows by images, and of texts by words, initialised from a CLIP's local weights."""

    wants_pixels = True

    def __init__(
        self,
        config: ClipConfig,
        texts: Sequence[str],
        read_images: ReadImages,
        *,
        seed: int,
        device: torch.device,
    ) -> None:
        clip = clips.create_model(config).float().eval()
        clip.logit_scale.requires_grad_(requires_grad=False)  # the retriever's own scale is used
        self.network = Clip4Idc(clip, seed=seed).to(device)
        self.about = {"encoder": "clip4idc", "clip": clips.identify_clip(config)}
        self._tokenize: Callable[[list[str]], Tensor] = clips.create_tokenizer(config)
        self._preprocess = clips.transform_of(clip.visual.preprocess_cfg)
        self._texts = texts
        self._read_images = read_images
        self._device = device

    def encode_pairs(self, places: Places) -> Tensor:
        """Return ``(B, d)`` unit vectors of the rows' first and last images, cropped as by CLIP."""
        crops: list[NDArray[np.uint8]] = []
        for row_index in places.tolist():
            images = self._read_images(row_index)
            crops += [self._preprocess(images[0]), self._preprocess(images[-1])]
        stacked = torch.from_numpy(np.stack(crops)).to(self._device)
        pixels = self._preprocess.numbers(stacked)
        return self.network.encode_pairs(pixels.unflatten(0, (-1, 2)))

    def texts(self, ids: Places) -> Tensor:
        """Return ``(N, d)`` unit vectors; texts are truncated to the tower's length."""
        texts = [self._texts[int(number)] for number in ids]
        return self.network.texts(self._tokenize(texts).to(self._device))

    def groups(self, rate: float) -> list[dict[str, Any]]:
        """Return the parameter groups: CLIP's weights at a thousandth of the new ones' rate."""
        clip = [weight for weight in self.network.clip.parameters() if weight.requires_grad]
        new: list[nn.Parameter] = []
        for name, weight in self.network.named_parameters():
            if not name.startswith("clip."):
                new.append(weight)
        return [{"params": new, "lr": rate}, {"params": clip, "lr": rate * CLIP_SHARE}]


Encoder = HeadsEncoder | Clip4IdcEncoder
