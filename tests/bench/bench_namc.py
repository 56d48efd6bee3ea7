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
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
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
from pairwright.tasks.models.namc import Decoding, Namc, NamcSizes
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
from pairwright.tasks.training.namc.batches import Batches, Pictures, read_rows
from pairwright.tasks.training.namc.captioner import make_captioner
from pairwright.tasks.training.namc.frozen import Frozen, open_frozen
from pairwright.tasks.training.namc.learn import Learner
from pairwright.tasks.training.tiny_model import TEMPLATE, train_tokenizer
from tests.bench.train_rows import make_words

PROMPT = "Describe how the second image differs from the first one, in one sentence, and name what changed."
PAD, UNKNOWN, START, END, MASK = 0, 100, 101, 102, 103
"""In BERT's vocabulary."""
CODES, WORDS = 1024, 30_522
HALF = 22
"""Words of a half of a description, as those of rendered scenes have."""
Work = Callable[[], object]


def compare(sides: Mapping[str, Callable[[], Work]], units: int, unit: str, *, turns: int) -> None:
    """Print how many units per second each side does, and the ratio of the first to the others."""
    made = {name: make() for name, make in sides.items()}
    for work in made.values():
        work()  # not timed
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in made}
    for turn in range(turns):
        for name in made if turn % 2 == 0 else reversed(made):
            _wait()
            start, busy = time.perf_counter(), time.process_time()
            made[name]()
            _wait()
            found[name].append((time.perf_counter() - start, time.process_time() - busy))
    best = {name: [min(seconds) for seconds in zip(*own, strict=True)] for name, own in found.items()}
    first = next(iter(best.values()))
    for name, (clock, busy) in best.items():
        ratios = f"{clock / first[0]:8.2f} times as long, {busy / first[1]:.2f} in CPU seconds"
        print(f"  {name:<36}{units / clock:12,.2f} {unit}/s{units / busy:12,.2f} per CPU second{ratios}", flush=True)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def make_namc(pairs: int, tokens: int) -> Work:
    """Return the writing of pairs by NAMC with the CNN that sees the images."""
    import timm

    torch.manual_seed(0)
    device = choose_device()
    cnn: Any = timm.create_model("resnet101", pretrained=False, features_only=True, out_indices=(3,)).eval().to(device)
    model = Namc(NamcSizes()).eval().to(device)
    pixels = torch.from_numpy(make_images(pairs)).flatten(0, 1).permute(0, 3, 1, 2).float().to(device) / 127.5 - 1
    # The end is never written, so that all pairs get all tokens.
    how = Decoding(start=START, end=END, banned=(PAD, UNKNOWN, START, END, MASK), length=tokens)

    @torch.inference_mode()
    def write() -> None:
        grids = cnn(pixels)[0].flatten(2).transpose(1, 2).unflatten(0, (pairs, 2))
        assert {len(one) for one in model.write(grids, how)} == {tokens}

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


class SeenAnew(Pictures):
    """Pictures that CNN and VQGAN look at in each step."""

    def features(self, rows: Sequence[int]) -> Tensor:
        """Return what the CNN sees."""
        return self._look(load_grids(CONFIG["cnn"]), rows)

    def see(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """Return what CLIP is shown, and what the CNN and VQGAN make of it."""
        found = super().see(rows)
        return found | ({"codes": self._look(load_codes(CONFIG["vqgan"]), rows)} if self.pixels else {})

    def _look(self, encoder: PlaceEncoder, rows: Sequence[int]) -> Tensor:
        with torch.no_grad():
            crops = self._some(self.frozen.crops, rows).to(choose_device()).flatten(0, 1)
            return encoder.network(encoder.numbers(crops)).unflatten(0, (-1, 2))


CONFIG: dict[str, str] = {}
"""Settings of the CNN and the VQGAN as JSON."""


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


def freeze(folder: Path, rows: int, namc: NamcConfig) -> Frozen:
    """Write what a run would have frozen of that many rows, each about two images of its own."""
    rng = np.random.default_rng(0)
    crops, known = make_images(rows).reshape(-1, SIDE, SIDE, 3), make_words(rng)
    crops.tofile(folder / "crops.bin")
    CONFIG.update(cnn=namc.cnn.model_dump_json(), vqgan=namc.vqgan.model_dump_json())
    encoders = {"grids": load_grids(CONFIG["cnn"]), "codes": load_codes(CONFIG["vqgan"])}
    for name, encoder in encoders.items():
        np.save(folder / f"{name}.npy", encoder.encode(list(crops)))
    widths = {name: encoder.width for name, encoder in encoders.items()}
    images = {str(number): True for number in range(2 * rows)}
    (folder / "about.json").write_text(json.dumps({"images": images, "side": SIDE, "widths": widths}))
    halves = [[" ".join(known[n] for n in rng.integers(len(known), size=HALF)) for _ in "ab"] for _ in range(rows)]
    lines = (
        {"key": str(row), "split": "train", "chosen": fill_template(("shows", "has"), *both),
         "images": [str(2 * row), str(2 * row + 1)]}
        for row, both in enumerate(halves)
    )  # fmt: skip
    (folder / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return open_frozen(folder)


def make_trainer(config: TrainConfig, frozen: Frozen, *, steps: int, anew: bool) -> Work:
    """Return the next steps of a training, off tables or with images looked at in each step."""
    words = bert_words(find_weights(config.namc.vocabulary))
    captioner = make_captioner(words, config.namc, frozen.widths, seed=0)
    captioner.model.to(choose_device())
    noise = captioner.model.noise
    texts, sides, _ = read_rows(frozen, "train", halves=True)
    pictures = (SeenAnew if anew else Pictures)(frozen, sides, clip_numbers(noise.clip) if noise else None)
    tokenizer = ClipWords(create_tokenizer(config.namc.clip, field=CLIP))
    batches = Batches(texts, pictures, clip=tokenizer, words=words, length=captioner.model.sizes.length)
    if noise and not anew:
        batches.relate(noise.eval())
    learner, size = Learner(captioner, config, config.optimiser.max_steps), config.optimiser.per_device_train_batch_size
    done = 0

    def learn() -> None:
        nonlocal done
        orders = ((step, 0.0, range(step * size, (step + 1) * size)) for step in range(done, done + steps))
        for (step, _, rows), (batch, identity) in batches.ahead(orders):
            learner.step(batch, identity, seeds=batches.seeds(rows, 0), number=step)
            done = step + 1

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
        print(
            f"Writing {given.tokens} tokens of each of {given.pairs} pairs at once (the paper's ratio: 21)", flush=True
        )
        writers = {"NAMC, with ResNet-101": make_namc, "Qwen2-VL-2B's architecture": make_rival}
        sides = {name: partial(make, given.pairs, given.tokens) for name, make in writers.items()}
        compare(sides, given.pairs * given.tokens, "tokens", turns=given.turns)
    if given.only == "writing":
        return
    with tempfile.TemporaryDirectory() as place:
        config = make_config(Path(place), batch=given.batch, steps=(1 + given.turns) * given.steps)
        frozen = freeze(Path(place), given.batch * config.optimiser.max_steps, config.namc)
        for name, noise in (("Pre-training", True), ("Fine-tuning", False)):
            print(f"{name}, {given.batch} rows at once", flush=True)
            own = config.namc.model_copy(update={"noise_enabled": noise})
            make = partial(make_trainer, config.model_copy(update={"namc": own}), frozen, steps=given.steps)
            sides = {"off the tables": partial(make, anew=False), "images seen in each step": partial(make, anew=True)}
            compare(sides, given.batch * given.steps, "samples", turns=given.turns)


if __name__ == "__main__":
    main()
