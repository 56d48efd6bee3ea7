"""Teach a stand-in to see, as published models can before anybody tunes them; it reads of no
difference here.

It learns to say what stands where in each of two drawn images. Beside that, linear heads ask of
each image token what stands in its cell and, in the second image, whether the cell has changed;
they are thrown away.
"""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn.functional import cross_entropy

from pairwright.schemas.claims import Graphs
from pairwright.schemas.rows import PreferenceRow
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.training.tiny_model import SIZES, Size, write_tiny_model
from tests.proof.draw_scenes import COLUMNS, DEPTHS, NAMED, SHAPES, SIDE, Drawn, draw_pairs
from tests.proof.people import PLACES

SIZES["drawn"] = Size(
    vocabulary=600,
    hidden=128,
    layers=3,
    heads=4,
    vision_width=96,
    vision_layers=2,
    vision_heads=4,
    patch=8,
    max_pixels=SIDE**2,
    spread=0.04,
)
"""A million weights; two by two patches are a cell."""
STEPS, BATCH, RATE, WARM, PAIRS = 500, 32, 1e-3, 50, 10_000
HEADS = 1.0
"""Weight of what the heads ask."""
SEED = 1_000
"""Of the pairs that are looked at; no other pairs are drawn with it."""
QUESTION = "What is to be seen?"
CELLS = len(COLUMNS) * len(DEPTHS)
AT_ONCE = 100
READ_AT = -2
"""Layer whose states the heads read: the last but one, since what the last one makes of images no
text looks at."""


def write_seeing_model(folder: Path, texts: Iterable[str], *, steps: int = STEPS) -> Path:
    """Write the checkpoint, unless it is there, and return its folder; its tokenizer has learnt
    from the texts, too."""
    target = folder / f"seeing-{steps}"
    if not target.exists():
        pairs = list(draw_pairs(PAIRS, seed=SEED))
        told = [say_what_is_there(pair.graphs) for pair in pairs[:BATCH]]
        model, processor = load_model(
            write_tiny_model(folder, [*texts, *told, QUESTION], size="drawn")
        )
        _teach(model, processor, pairs, steps)
        model.save_pretrained(target)
        processor.save_pretrained(target)
    return target


def say_what_is_there(graphs: Graphs) -> str:
    """Return what each of two images shows, row by row; nothing is compared."""
    told = []
    for name, graph in zip(("first", "second"), graphs, strict=True):
        things = sorted(graph.objects, key=_cell)
        shown = ", ".join(
            f"a {one.colour} {one.shape} {PLACES[one.depth, str(one.column)]}" for one in things
        )
        told.append(f"The {name} image shows {shown}.")
    return " ".join(told)


def look_at(folder: Path, rows: Sequence[PreferenceRow]) -> dict[str, NDArray[np.float64]]:
    """Return a vector of each image of some rows, by its key: mean and maximum of what a model
    makes of its cells."""
    model, processor = load_model(folder)
    model.eval()
    found: dict[str, NDArray[np.float64]] = {}
    for first in range(0, len(rows), AT_ONCE):
        some = rows[first : first + AT_ONCE]
        inputs, _ = _read(processor, [(row.images, "") for row in some])
        with torch.no_grad():
            seen = _cells_of(model, inputs, model.model(**inputs).last_hidden_state).unflatten(
                1, (2, CELLS)
            )
        vectors = torch.cat([seen.mean(2), seen.amax(2)], -1).double().numpy()
        keys = [key for row in some for key in row.image_keys]
        found |= dict(zip(keys, vectors.reshape(len(keys), -1), strict=True))
    return found


def load_model(folder: Path) -> tuple[Any, Any]:
    """Return a checkpoint's model and its processor."""
    from transformers import AutoProcessor, Qwen2VLForConditionalGeneration

    return Qwen2VLForConditionalGeneration.from_pretrained(folder), AutoProcessor.from_pretrained(
        folder
    )


def _teach(model: Any, processor: Any, pairs: Sequence[Drawn], steps: int) -> None:
    torch.manual_seed(0)
    rng, width = Random(0), model.config.text_config.hidden_size
    heads = torch.nn.ModuleList(
        torch.nn.Linear(width, size) for size in (1 + len(NAMED), 1 + len(SHAPES), 2)
    )
    weights = [*model.parameters(), *heads.parameters()]
    optimiser = torch.optim.AdamW(weights, RATE, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min((step + 1) / WARM, 1.0, 2 * (steps - step) / steps)
    )
    model.train()
    for _ in range(steps):
        batch = rng.sample(pairs, BATCH)
        inputs, labels = _read(
            processor, [(pair.row.images, say_what_is_there(pair.graphs)) for pair in batch]
        )
        made = model(**inputs, labels=labels, output_hidden_states=True)
        seen = _cells_of(model, inputs, made.hidden_states[READ_AT])
        loss = made.loss + HEADS * _ask(heads, seen, [pair.graphs for pair in batch])
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimiser.step()
        schedule.step()
    model.eval()


def _read(processor: Any, shown: Sequence[tuple[Sequence[bytes], str]]) -> tuple[Any, torch.Tensor]:
    """Return a model's inputs for images and what is said of them, and labels: what is said
    alone."""
    content = [{"type": "image"}, {"type": "image"}, {"type": "text", "text": QUESTION}]
    prompt = processor.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True
    )
    images = [[Image.open(io.BytesIO(image)) for image in own] for own, _ in shown]
    texts = [f"{prompt}{said}<|im_end|>" for _, said in shown]
    inputs = processor(text=texts, images=images, padding=True, return_tensors="pt")
    begins = len(processor(text=prompt, images=images[0])["input_ids"][0])
    labels = inputs["input_ids"].where(inputs["attention_mask"] > 0, -100)
    labels[:, :begins] = -100
    return inputs, labels


def _cells_of(model: Any, inputs: Any, states: torch.Tensor) -> torch.Tensor:
    """Return (B, 18, width): the states of the cells of both images, row by row."""
    return states[inputs["input_ids"] == model.config.image_token_id].view(
        len(states), 2 * CELLS, -1
    )


def _ask(heads: Any, seen: torch.Tensor, graphs: Sequence[Graphs]) -> torch.Tensor:
    cells = torch.tensor([[_name_cells(graph) for graph in pair] for pair in graphs]).flatten(1, 2)
    changed = (cells[:, :CELLS] != cells[:, CELLS:]).any(-1).long()
    asked = ((seen, cells[..., 0]), (seen, cells[..., 1]), (seen[:, CELLS:], changed))
    losses = [
        cross_entropy(head(states).flatten(0, 1), wanted.flatten())
        for head, (states, wanted) in zip(heads, asked, strict=True)
    ]
    return torch.stack(losses).sum()


def _cell(thing: Any) -> int:
    return len(COLUMNS) * DEPTHS.index(thing.depth) + COLUMNS.index(thing.column)


def _name_cells(graph: SceneGraph) -> list[tuple[int, int]]:
    """Return colour and shape of what stands in each cell, row by row; 0 where nothing does."""
    found = [(0, 0)] * CELLS
    for thing in graph.objects:
        found[_cell(thing)] = (1 + NAMED.index(thing.colour), 1 + SHAPES.index(thing.shape))
    return found
