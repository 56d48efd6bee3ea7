"""Write the pages that list settings, tables and memory, from the same source as what they describe: ``make docs``.

A test holds that the committed pages are what the source gives.
"""

import ast
import inspect
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from pairwright.flows.pipeline.list_settings import Setting, as_typed, list_settings
from pairwright.flows.pipeline.load_profile import load_profile, profile_names
from pairwright.flows.pipeline.pipeline import list_stages
from pairwright.flows.pipeline.stages import BY_NAME
from pairwright.schemas import rows
from pairwright.schemas.section import with_field
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.serving.gpu_memory import GB, MARGIN
from pairwright.tasks.store.stage import Stage
from pairwright.tasks.training.estimate_memory import PATCH, TEXT, Sizes, count_trained, demand_of

MADE = "<!-- Made by `make docs`. Change the source, not this page. -->"
SERVED = "models.chat."
"""Every served model has these settings, under its own name."""
PUBLISHED = Path(__file__).parents[1] / "tests" / "fixtures" / "published"
"""Configs and sizes of the models that profiles name; a test holds them against the libraries' own
models."""
MACHINES = {"gpu-24": (24 * 10**9,), "gpu-80": (80 * 10**9,), "gpu-8x80": (80 * 10**9,) * 8}
INSTALL = """\
vLLM's pins and this project's exclude each other (Prefect needs a newer FastAPI), so that it has an environment of its
own: 0.18 or newer. A build finds it on the PATH, or where
`models.chat.launch.command` says:

```console
$ python3 -m venv ~/vllm && ~/vllm/bin/python -m pip install vllm
$ ln -s ~/vllm/bin/vllm ~/.local/bin/vllm
```

A profile names no commit of a served model, for none could be verified where it was written (those of the encoders are
pinned): what `fetch` finds on the model's main branch is verified against the Hub's hashes, and vLLM, which starts
offline, loads that; `models.chat.revision` names another."""
COMMANDS = """\
```console
$ pairwright fetch --profile gpu-80 --served
$ pairwright doctor --profile gpu-80
$ pairwright build PHOTOS --profile gpu-80 --out album
$ pairwright train album --objective sft --model Qwen/Qwen2-VL-7B-Instruct
```"""


TRAINED = f"""\
In GB; *trained* in billions of weights. Four rows at once, each of two images of 448 x 448 pixels and {TEXT} tokens of
text, with gradient checkpointing, and beside it without. LoRA of rank 64 keeps the weights in bfloat16, full tuning in
float32. Over eight GPUs FSDP shares weights, gradients and AdamW's means; *gathered* are two layers, the embeddings
and the vision tower, in 16 bits. ADPO in full has a second model, whole on each GPU. Images take memory as text does,
{PATCH} pixels a token; what the frozen vision tower computes is in the {MARGIN / GB:.0f} GB that are set aside. Weights
are counted.
Activations are a formula that a test holds against what PyTorch keeps of such a batch (within a tenth with LoRA; no GPU
has measured it). `pairwright train` compares the same numbers with the GPUs that are there before it loads a model,
refuses what fits with no batch, and names settings that need less."""


MINED = """\
A build up to mining took 336 MB at its peak for 1,000 tiny images, 455 MB for 10,000, and 938 MB (866 s) for 100,000
(profile `scenes`, one worker, all in one process: 140 MB are Python and its libraries). More workers take their share
each: with two, 100,000 images took 1.4 GB, of which 548 MB were in the main process. What grows with the images is the
ledger of the tables' keys, compressed, in the process that cuts the shards: it keeps at most 1 GB in memory, and the
rest in TMPDIR. What a shard takes follows from its rows (`run.rows_per_shard_of`), above all those of `neighbours`,
`similar_pairs` and `matched_pairs`; the vectors are mapped from a file, 2 bytes a number."""


def write_settings_page() -> str:
    """Return a page in Markdown with every setting of a build and of a training run: a table per section."""
    found = list_settings()
    profiles = _values_of_profiles()
    lines = ["# Settings", MADE]
    for command, title in (("build", "Build settings"), ("train", "Training settings")):
        lines += [f"## {title}", f"`pairwright {command} --set NAME=VALUE`"]
        own = [one for one in found if one.command == command]
        for section in dict.fromkeys(_section(one.name) for one in own):
            inner = [one for one in own if _section(one.name) == section]
            lines += [f"### {section}"] if section else []
            lines.append("\n".join(_table(inner, profiles if command == "build" else {})))
    return "\n\n".join(lines) + "\n"


def write_tables_page() -> str:
    """Return a page in Markdown with every table of a dataset and what it is made from."""
    stages = list_stages(BY_NAME.plugins)
    about = [
        f"| `{one.name}` | {one.group} | `{one.writes.__name__}` | {_cell(_about(one))} | {_names(one.reads)} | "
        f"{_names(sorted(one.tables - one.reads.keys()))} |"
        for one in stages
    ]
    parts = [
        "# Tables of a dataset",
        MADE,
        "The same for every profile: a stage that is off leaves its table empty or passes rows through.",
        "\n".join(
            [
                "| table | step | row | what its stage does | reads | looks up |",
                "|---" * 6 + "|",
                *about,
            ]
        ),
    ]
    return (
        "\n\n".join(
            [*parts, "## Columns", *_columns(dict.fromkeys(one.writes.__name__ for one in stages))]
        )
        + "\n"
    )


def _about(stage: Stage) -> str:
    """Return the first sentence of a stage's module, or of a plugin's function."""
    function = stage.function.func if isinstance(stage.function, partial) else stage.function
    place = function if stage.name in BY_NAME.plugins else sys.modules[function.__module__]
    return " ".join((place.__doc__ or "").partition("\n\n")[0].split())


def _columns(types: Iterable[str]) -> Iterator[str]:
    """Yield a table of columns for each type of row, with the words under its fields."""
    yield "Every row has the columns of `Row`; `Row` is what the other types extend."
    classes = {
        one.name: one
        for one in ast.parse(inspect.getsource(rows)).body
        if isinstance(one, ast.ClassDef)
    }
    for name in ("Row", *types):
        lines = [f"### {name}", "", "| column | type | meaning |", "|---|---|---|"]
        body = classes[name].body
        for field, below in zip(body, [*body[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign):
                about = ast.literal_eval(below.value) if isinstance(below, ast.Expr) else ""
                cells = (
                    f"`{ast.unparse(field.target)}`",
                    f"`{ast.unparse(field.annotation)}`",
                    " ".join(about.split()),
                )
                lines.append(f"| {' | '.join(map(_cell, cells))} |")
        yield "\n".join(lines)


def write_memory_page() -> str:
    """Return a page in Markdown with what the models of each GPU profile need, stage by stage."""
    loaded = _read_published("encoders")  # by the build itself, in float32
    lines = [
        "| profile | stages | model | disk | GPUs | weights | cache, activations | each GPU needs | of |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [f"| all | {stage} | {' | '.join(_loaded(one))} | |" for stage, one in loaded.items()]
    for profile, gpus in MACHINES.items():
        lines += [f"| `{profile}` | {' | '.join(cells)} |" for cells in _served(profile, gpus)]
    about = (
        "In GB. *Weights* and *cache* are those on each GPU; the cache holds a sequence of `max_model_len` tokens, and "
        f"what is left of the GPU holds more of them at once. To compute, {MARGIN / GB:.0f} GB are set aside: CUDA's "
        "context and graphs, the activations of a full batch, images. *Of* is `gpu_memory_utilization` of the GPU. "
        "A model that does not fit ends with vLLM's own reason. Models of the build itself compute in batches that are "
        "halved until they fit, one stage after the other; a stage has let go of the GPU when the next begins. Their "
        "*activations* are those of the "
        "first batch, and each GPU needs them of one image to all of these: photographs of 4:3, for boxes with 256 "
        "tokens of tags, for masks with 8 boxes, for removals crops of 1,024 pixels. They were counted on tensors "
        "without numbers, with attention in plain steps: an upper bound."
    )
    parts = ["# Memory of the GPU profiles", MADE, "\n".join(lines), about, "## vLLM", INSTALL]
    parts += ["## From photographs to a trained adapter", COMMANDS, "\n".join(_steps())]
    parts += ["## Mining, without a GPU", MINED]
    return "\n\n".join([*parts, "## Training", "\n".join(_trained()), TRAINED]) + "\n"


def _steps() -> Iterator[str]:
    """Yield what each of the commands takes of a GPU of 80 GB and of the disk."""
    encoders, served = (
        _read_published("encoders").values(),
        list(_served("gpu-80", MACHINES["gpu-80"])),
    )
    here, fetched = (
        sum(one.get("disk", one["bytes"]) for one in encoders),
        sum(float(cells[2]) for cells in served),
    )
    most = max(
        float(cells[-2].split()[-1])
        for cells in (*served, *((*_loaded(one), "") for one in encoders))
    )
    sizes, config = _read_sizes("7b"), TrainConfig(objective="sft")
    kept = with_field(config, ["optimiser", "gradient_checkpointing"], value=True)
    adapters, model = 12 * count_trained(sizes, config) / GB, 2 * sizes.whole / GB
    yield "| command | memory of the GPU | disk |"
    yield "|---|---|---|"
    yield f"| `fetch` | | {here / GB:.1f} and {fetched:.1f} |"
    yield "| `doctor` | | |"
    album = "the photographs once more, 3.6 kB of vectors each, and 2 bytes per pixel of a rejected image"
    yield f"| `build` | {most:.1f} are enough, stage by stage as above; vLLM takes 0.9 of any GPU | {album} |"
    least, checkpointed = (demand_of(sizes, each).total / GB for each in (config, kept))
    yield (
        f"| `train` | {least:.1f}, or {checkpointed:.1f} with `--set optimiser.gradient_checkpointing=true` | "
        f"{config.output.save_total_limit} checkpoints of {adapters:.1f}, and "
        f"the model with its adapters merged: {model:.1f} |"
    )


def _trained() -> Iterator[str]:
    """Yield what training takes of each GPU, by model, tuning, and number of GPUs that share the weights."""
    columns = (
        "model",
        "tuning",
        "GPUs",
        "trained",
        "weights",
        "gradients, AdamW",
        "gathered",
        "activations",
    )
    yield f"| {' | '.join(columns)} | each GPU needs | and without checkpointing | ADPO's reference |"
    yield "|---" * 11 + "|"
    for name in ("2b", "7b", "72b"):
        sizes = _read_sizes(name)
        for tuning, gpus in product(("lora", "full"), (1, 8)):
            plain = with_field(TrainConfig(objective="sft"), ["model", "tuning"], tuning)
            config = with_field(plain, ["optimiser", "gradient_checkpointing"], value=True)
            share, adpo = (
                demand_of(sizes, config, gpus=gpus),
                config.model_copy(update={"objective": "adpo"}),
            )
            parts = (share.weights, share.states, share.gathered, share.activations, share.total)
            whole = (
                *parts,
                demand_of(sizes, plain, gpus=gpus).total,
                demand_of(sizes, adpo, gpus=gpus).reference,
            )
            cells = (
                f"{size / GB:.1f}" if size else ""
                for size in (count_trained(sizes, config), *whole)
            )
            yield f"| Qwen2-VL-{name.upper()} | {tuning} | {gpus} | {' | '.join(cells)} |"


def _read_sizes(name: str) -> Sizes:
    found = _read_published(f"qwen2-vl-{name}")
    return Sizes.of(found["config"], found["total_size"])


def _loaded(one: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of a model that the build loads itself."""
    least, most = (one["bytes"] + one["activations"] // count for count in (one["batch"], 1))
    sizes = (one.get("disk", one["bytes"]), one["bytes"], one["activations"], least, most)
    disk, weights, activations, first, last = (f"{size / GB:.1f}" for size in sizes)
    images = f"{activations} of {one['batch']} image{'s' * (one['batch'] > 1)}"
    return (
        one["model"],
        disk,
        "each",
        weights,
        images,
        last if least == most else f"{first} to {last}",
    )


def _served(profile: str, gpus: tuple[int, ...]) -> Iterator[tuple[str, ...]]:
    """Yield what vLLM loads, divided as a build divides it."""
    known = {
        one["model"]: one
        for path in PUBLISHED.glob("*.json")
        if "model" in (one := _read_published(path.stem))
    }
    for name, chat in load_profile(profile).models.items():
        config, weights = known[chat.model]["config"], known[chat.model]["total_size"]
        shared = chat.launch.tensor_parallel
        copies = chat.launch.data_parallel or len(gpus) // shared
        heads, width = config["num_attention_heads"], config["hidden_size"]
        held = max(
            1, config.get("num_key_value_heads", heads) // shared
        )  # keys and values of 16 bits, by layer
        cache = (
            2
            * config["num_hidden_layers"]
            * held
            * (width // heads)
            * 2
            * chat.launch.max_model_len
        )
        limit = chat.launch.gpu_memory_utilization * min(gpus)
        sizes = (weights, weights // shared, cache, weights // shared + cache + MARGIN, limit)
        spread = f"{shared} x {copies} copies" if copies > 1 else f"{shared}"
        disk, *each = (f"{size / GB:.1f}" for size in sizes)
        yield f"texts of `models.{name}`", chat.model, disk, spread, *each


def _read_published(name: str) -> dict[str, Any]:
    return json.loads((PUBLISHED / f"{name}.json").read_bytes())


def _values_of_profiles() -> dict[str, list[str]]:
    """Return the values that profiles give settings other than the default, by the settings' names."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for profile in profile_names():
        for one in list_settings(profile=profile):
            if one.command == "train" or one.value == one.default or one.name in ("name", "about"):
                continue
            _, model, field = (
                one.name.split(".", 2) if one.name.startswith("models.") else ("", "", "")
            )
            name, of = (SERVED + field, f" {model}") if model else (one.name, "")
            found[name, f"{of}: `{as_typed(one.value)}`"].append(profile)
    said: dict[str, list[str]] = defaultdict(list)
    for (name, value), profiles in found.items():
        said[name].append(f"{', '.join(profiles)}{value}")
    return said


def _section(name: str) -> str:
    """Return the heading that a setting stands under."""
    section = name.rpartition(".")[0]
    return section.replace(SERVED.rstrip("."), "models.NAME")


def _table(settings: Iterable[Setting], profiles: dict[str, list[str]]) -> Iterator[str]:
    yield "| name | type | default | profiles | meaning |"
    yield "|---|---|---|---|---|"
    for one in settings:
        allowed = "; ".join(filter(None, (one.type, one.range)))
        default = "required" if one.default is None else f"`{as_typed(one.default)}`"
        cells = (
            f"`{one.name.rpartition('.')[2]}`",
            allowed,
            default,
            "; ".join(profiles.get(one.name, ())),
            one.meaning,
        )
        yield f"| {' | '.join(map(_cell, cells))} |"


def _names(tables: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in tables)


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


PAGES = {
    "settings.md": write_settings_page,
    "tables.md": write_tables_page,
    "memory.md": write_memory_page,
}

if __name__ == "__main__":
    for name, write in PAGES.items():
        (Path(__file__).parent / "reference" / name).write_text(write(), encoding="utf-8")
