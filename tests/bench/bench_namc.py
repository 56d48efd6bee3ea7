"""Measure NAMC of the paper's size: writing against a vision-language model, training with tables against without.

Run with ``make bench BENCH=namc``, or ``python -m tests.bench.bench_namc``; takes some ten minutes and 12 GB. Needs the
extra ``train``. All weights are random, of the published sizes: a step costs the same as with learnt ones.

1. Tokens per second of greedy writing with a cache of keys and values, of the same pairs of images, the same number of
   tokens: NAMC, with ResNet-101 that sees the images' grids within the time; and a model of Qwen2-VL-2B's architecture,
   run by transformers. Images are scaled, and the prompt is tokenised, before the clock starts. The paper has 2,248
   against 106 (BLIP2IDC, 3.8 B) on an RTX 3090, and does not say what was timed.
2. Samples per second of pre-training and of fine-tuning at the paper's size: off the tables of what CNN and VQGAN see,
   as ``pairwright train --objective namc --size paper`` does; and the same loop that has them look at the images in
   each step. The next batch is made while the model learns from this one; decoding is timed on neither side.

The sides take turns, and the best turn counts: of the clock, and of the process' own seconds, which other work on the
machine changes less.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pairwright.prompts.differences import fill_template
from pairwright.schemas.namc import CnnConfig, DualEncoderConfig, NamcConfig, VocabularyConfig, VqganConfig
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.models.namc import Described, Namc, NamcSizes
from pairwright.tasks.models.namc_places import (
    CLIP,
    SIDE,
    PlaceEncoder,
    clip_numbers,
    find_weights,
    load_codes,
    load_grids,
)
from pairwright.tasks.models.namc_words import SPECIAL, ClipWords, bert_words
from pairwright.tasks.models.open_clip_embedder import create_tokenizer
from pairwright.tasks.texts.differences import Difference
from pairwright.tasks.training.namc.batches import Batches, Text
from pairwright.tasks.training.namc.captioner import make_captioner
from pairwright.tasks.training.namc.tables import Copies
from pairwright.tasks.training.namc.train_namc import Learner
from pairwright.tasks.training.tiny_model import TEMPLATE, train_tokenizer
from tests.bench.train_rows import make_words
from tests.bench.turns import print_rates, take_turns

PROMPT = "Describe how the second image differs from the first one, in one sentence, and name what changed."
PAD, UNKNOWN, START, END, MASK = 0, 100, 101, 102, 103
"""In BERT's vocabulary."""
CODES, WORDS = 1024, 30_522
HALF = 22
"""Words of a half of a description, as those of rendered scenes have."""
Work = Callable[[], object]


def make_namc(pairs: int, tokens: int) -> Work:
    """Return the writing of pairs by NAMC with the CNN that sees the images."""
    import timm

    torch.manual_seed(0)
    device = choose_device()
    cnn: Any = timm.create_model("resnet101", pretrained=False, features_only=True, out_indices=(3,)).eval().to(device)
    model = Namc(NamcSizes()).eval().to(device)
    pixels = torch.from_numpy(make_images(pairs)).flatten(0, 1).permute(0, 3, 1, 2).float().to(device) / 127.5 - 1
    banned = (PAD, UNKNOWN, START, END, MASK)  # the end, too, so that all pairs get all tokens

    @torch.inference_mode()
    def write() -> None:
        compared = model.compare(cnn(pixels)[0].flatten(2).transpose(1, 2).unflatten(0, (pairs, 2)))
        said = model.describer.write(compared, start=START, end=END, banned=banned, length=tokens)
        assert {len(one) for one in said} == {tokens}

    return write


def make_rival(pairs: int, tokens: int) -> Work:
    """Return the writing of pairs by a model of Qwen2-VL-2B's architecture, as transformers runs it."""
    from transformers import AutoModelForImageTextToText, Qwen2VLConfig, Qwen2VLImageProcessor, Qwen2VLProcessor
    from transformers import Qwen2VLVideoProcessor as Videos

    tokenizer = train_tokenizer([PROMPT], 1_000)
    processor: Any = Qwen2VLProcessor(Qwen2VLImageProcessor(), tokenizer, Videos(), chat_template=TEMPLATE)
    number: Any = tokenizer.convert_tokens_to_ids
    text = {
        "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
        "num_key_value_heads": 2, "vocab_size": 151_936, "max_position_embeddings": 32_768, "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0, "mrope_section": [16, 24, 24]},
        "bos_token_id": number("<|endoftext|>"), "eos_token_id": number("<|im_end|>"),
        "pad_token_id": number("<|endoftext|>"),
    }  # fmt: skip
    vision = {"depth": 32, "embed_dim": 1280, "num_heads": 16, "mlp_ratio": 4, "patch_size": 14, "hidden_size": 1536}
    names = {"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>",
             "vision_start_token_id": "<|vision_start|>", "vision_end_token_id": "<|vision_end|>"}  # fmt: skip
    marks: dict[str, Any] = {name: number(token) for name, token in names.items()}
    config = Qwen2VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True, **marks)
    torch.manual_seed(0)
    with torch.device(choose_device()):
        model: Any = AutoModelForImageTextToText.from_config(config, dtype=torch.float32).eval()
    chat = [{"role": "user", "content": [{"type": "image"}, {"type": "image"}, {"type": "text", "text": PROMPT}]}]
    asked = processor.apply_chat_template(chat, add_generation_prompt=True)
    images = [list(pair) for pair in make_images(pairs)]
    inputs = processor(text=[asked] * pairs, images=images, return_tensors="pt").to(model.device)

    @torch.inference_mode()
    def write() -> None:
        said = model.generate(**inputs, min_new_tokens=tokens, max_new_tokens=tokens, do_sample=False)
        assert said.shape[1] == inputs["input_ids"].shape[1] + tokens

    return write


def make_images(pairs: int) -> Any:
    """Return ``(pairs, 2, 224, 224, 3)`` noise."""
    return np.random.default_rng(0).integers(0, 256, (pairs, 2, SIDE, SIDE, 3), dtype=np.uint8)


class SeenAnew(Batches):
    """Batches whose images CNN and VQGAN look at in each step."""

    config: NamcConfig
    crops: Any
    """``(images, 224, 224, 3)``."""

    def features(self, rows: Sequence[int]) -> Tensor:
        """Return what the CNN sees."""
        return self._look(load_grids(self.config.cnn.model_dump_json()), rows)

    def make(self, rows: Sequence[int]) -> Described:
        """Return a batch with the codes that VQGAN gives."""
        batch = super().make(rows)
        if not self.config.noise_enabled:
            return batch
        return replace(batch, codes=self._look(load_codes(self.config.vqgan.model_dump_json()), rows))

    def _look(self, encoder: PlaceEncoder, rows: Sequence[int]) -> Tensor:
        with torch.no_grad():
            crops = torch.from_numpy(show(self.crops, [self.texts[row] for row in rows])).to(choose_device())
            return encoder.network(encoder.numbers(crops)).unflatten(0, (-1, 2))


def show(crops: Any, texts: Sequence[Text]) -> Any:
    """Return ``(2 B, 224, 224, 3)``, the crops of rows."""
    return np.concatenate([crops[2 * text.place : 2 * text.place + 2] for text in texts])


def make_config(folder: Path, *, batch: int, steps: int) -> TrainConfig:
    """Write models with random weights, and return the settings of a run that pre-trains with them."""
    import open_clip
    import timm
    from safetensors.torch import save_file
    from transformers import ChameleonVQVAE, ChameleonVQVAEConfig

    namc = NamcConfig(
        size="paper",
        clip=DualEncoderConfig(checkpoint=str(folder / "clip.safetensors")),
        cnn=CnnConfig(model="resnet101", checkpoint=str(folder / "resnet101.pth")),
        vqgan=VqganConfig(checkpoint=str(folder / "vqgan.ckpt")),
        vocabulary=VocabularyConfig(checkpoint=str(folder / "vocab.txt")),
    )
    torch.manual_seed(0)
    clip: Any = open_clip.create_model(namc.clip.model, pretrained=None)
    save_file(clip.state_dict(), folder / "clip.safetensors")
    torch.save(timm.create_model(namc.cnn.model, pretrained=False).state_dict(), folder / "resnet101.pth")
    vqgan = ChameleonVQVAEConfig(
        embed_dim=256, num_embeddings=CODES, latent_channels=256, resolution=256, base_channels=128,
        channel_multiplier=[1, 1, 2, 2, 4], num_res_blocks=2, attn_resolutions=[16],
    )  # fmt: skip
    torch.save({"state_dict": ChameleonVQVAE(vqgan).state_dict()}, folder / "vqgan.ckpt")
    words = [*SPECIAL, *"abcdefghijklmnopqrstuvwxyz,.", *make_words(np.random.default_rng(0))]
    words += fill_template(("shows", "has"), "", "").lower().replace(",", " ").replace(".", " ").split()
    known = list(dict.fromkeys(words))
    known += [f"[unused{number}]" for number in range(WORDS - len(known))]
    (folder / "vocab.txt").write_text("\n".join(known) + "\n")
    optimiser = {"per_device_train_batch_size": batch, "max_steps": steps, "learning_rate": 3e-4}
    return TrainConfig.model_validate({"objective": "namc", "namc": namc.model_dump(), "optimiser": optimiser})


def write_texts(rows: int) -> list[Text]:
    """Return descriptions of rows, each about two images of its own."""
    rng = np.random.default_rng(0)
    known = make_words(rng)
    texts: list[Text] = []
    for row in range(rows):
        first, second = (" ".join(known[n] for n in rng.integers(len(known), size=HALF)) for _ in "ab")
        said = fill_template(("shows", "has"), first, second)
        parts = Difference(first, second, ("shows", "has"), said)
        texts.append(Text(row, str(row), said, (str(2 * row), str(2 * row + 1)), parts))
    return texts


def see_all(crops: Any, namc: NamcConfig) -> Copies:
    """Return what the tables say of all images."""
    encoders = {"grids": load_grids(namc.cnn.model_dump_json()), "codes": load_codes(namc.vqgan.model_dump_json())}
    return Copies(
        images={str(number): number for number in range(len(crops))},
        widths={name: encoder.width for name, encoder in encoders.items()},
        **{name: encoder.encode(list(crops)) for name, encoder in encoders.items()},
    )


def make_trainer(config: TrainConfig, seen: tuple[Any, Copies], *, steps: int, anew: bool) -> Work:
    """Return the next steps of a training, off tables or with images looked at in each step."""
    crops, copies = seen
    words = bert_words(find_weights(config.namc.vocabulary))
    captioner = make_captioner(words, config.namc, copies.widths, seed=0)
    captioner.model.to(choose_device())
    noise = captioner.model.noise
    numbers = clip_numbers(noise.clip) if noise else None

    def pixels(texts: Sequence[Text], _features: Tensor) -> Tensor:
        assert numbers is not None
        return numbers(torch.from_numpy(show(crops, texts))).unflatten(0, (-1, 2))

    batches = (SeenAnew if anew else Batches)(
        write_texts(len(crops) // 2),
        copies,
        clip=ClipWords(create_tokenizer(config.namc.clip, field=CLIP)),
        words=words,
        length=captioner.model.sizes.length,
        show=pixels if noise else None,
    )
    if isinstance(batches, SeenAnew):
        batches.config, batches.crops = config.namc, crops
    learner = Learner(captioner, config, config.optimiser.max_steps)
    size, done = config.optimiser.per_device_train_batch_size, 0

    def learn() -> None:
        nonlocal done
        orders = [range(step * size, (step + 1) * size) for step in range(done, done + steps)]
        for batch in batches.ahead(orders):
            learner.step([batch], number=done, rows=size)
            done += 1

    return learn


def main() -> None:
    """Read the command line."""
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=32 if gpu else 4, help="pairs of images at once")
    parser.add_argument("--tokens", type=int, default=48, help="written of each pair; 80 at the most")
    parser.add_argument("--turns", type=int, default=4 if gpu else 2, help="how often each side runs")
    parser.add_argument("--batch", type=int, default=64 if gpu else 4, help="rows that are trained on at once")
    parser.add_argument("--steps", type=int, default=10 if gpu else 2, help="of a turn of training")
    parser.add_argument("--only", choices=("writing", "training"), help="measure that alone")
    given = parser.parse_args()
    if given.only != "training":
        writers = {"NAMC, with ResNet-101": make_namc, "Qwen2-VL-2B's architecture": make_rival}
        sides = {name: make(given.pairs, given.tokens) for name, make in writers.items()}
        title = f"Writing {given.tokens} tokens of each of {given.pairs} pairs at once (the paper's ratio: 21)"
        print_rates(title, take_turns(sides, given.turns), given.pairs * given.tokens, "tokens")
    if given.only == "writing":
        return
    with tempfile.TemporaryDirectory() as place:
        config = make_config(Path(place), batch=given.batch, steps=(1 + given.turns) * given.steps)
        crops = make_images(given.batch * config.optimiser.max_steps).reshape(-1, SIDE, SIDE, 3)
        seen = (crops, see_all(crops, config.namc))
        for name, noise in (("Pre-training", True), ("Fine-tuning", False)):
            own = config.model_copy(update={"namc": config.namc.model_copy(update={"noise_enabled": noise})})
            make = partial(make_trainer, own, seen, steps=given.steps)
            sides = {"off the tables": make(anew=False), "images seen in each step": make(anew=True)}
            title = f"{name}, {given.batch} rows at once"
            print_rates(title, take_turns(sides, given.turns), given.batch * given.steps, "samples")


if __name__ == "__main__":
    main()
