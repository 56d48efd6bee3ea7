"""Write the pages that list settings, tables and memory from the source: ``make docs``.

A test holds that the committed pages are what the source gives.
"""

import ast
import inspect
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
MACHINES = {
    "paper-24": (24 * 10**9,),
    "paper-80": (80 * 10**9,),
    "paper-8x80": (80 * 10**9,) * 8,
    "gpu-24": (24 * 10**9,),
    "gpu-80": (80 * 10**9,),
}
INSTALL = """\
vLLM's pins and this project's exclude each other (Prefect needs a newer FastAPI), so that it has
an environment of its own: 0.18 or newer. A build finds it on the PATH, or where
`models.chat.launch.command` says:

```console
$ python3 -m venv ~/vllm && ~/vllm/bin/python -m pip install vllm
$ ln -s ~/vllm/bin/vllm ~/.local/bin/vllm
```

A profile names no commit of a served model, for none could be verified where it was written
(those of the encoders are pinned): what `fetch` finds on the model's main branch is verified
against the Hub's hashes, and vLLM, which starts offline, loads that; `models.chat.revision` names
another."""
COMMANDS = """\
```console
$ pairwright fetch --profile paper-80 --served
$ pairwright doctor --profile paper-80
$ pairwright build PHOTOS --profile paper-80 --out album
$ pairwright train album --objective sft --model Qwen/Qwen2-VL-7B-Instruct
```"""


TRAINED = f"""\
In GB; *trained* in billions of weights. Four rows at once, each of two images of 448 x 448 pixels
and {TEXT} tokens of text, with gradient checkpointing, and beside it without. LoRA of rank 64
keeps the weights in bfloat16, full tuning in float32. Over eight GPUs FSDP shares weights,
gradients and AdamW's means; *gathered* are two layers, the embeddings and the vision tower, in 16
bits. ADPO in full has a second model, whole on each GPU. Images take memory as text does, {PATCH}
pixels a token; what the frozen vision tower computes is in the {MARGIN / GB:.0f} GB that are set
aside. Weights are counted. Activations are a formula that a test holds against what PyTorch keeps
of such a batch (within a tenth with LoRA; no GPU has measured it). `pairwright train` compares
the same numbers with the GPUs that are there before it loads a model, refuses what fits with no
batch, and names settings that need less."""


SERVED_MEMORY = f"""\
In GB. *Weights* and *cache* are those on each GPU; the cache holds a sequence of `max_model_len`
tokens, and what is left of the GPU holds more of them at once. To compute, {MARGIN / GB:.0f} GB are
set aside: CUDA's context and graphs, the activations of a full batch, images. *Of* is
`gpu_memory_utilization` of the GPU. A model that does not fit ends with vLLM's own reason. Models
of the build itself compute in batches that are halved until they fit, one stage after the other; a
stage has let go of the GPU when the next begins. Their *activations* are those of the first batch,
and each GPU needs them of one image to all of these: photographs of 4:3, for boxes with 256 tokens
of tags, for masks with 8 boxes, for removals crops of 1,024 pixels. They were counted on tensors
without numbers, with attention in plain steps: an upper bound."""


MINED = """\
A build up to mining took 336 MB at its peak for 1,000 tiny images, 455 MB for 10,000, and 938 MB
(866 s) for 100,000 (profile `scenes`, one worker, all in one process: 140 MB are Python and its
libraries). More workers take their share each: with two, 100,000 images took 1.4 GB, of which 548
MB were in the main process. What grows with the images is the ledger of the tables' keys,
compressed, in the process that cuts the shards: it keeps at most 1 GB in memory, and the rest in
TMPDIR. What a shard takes follows from its rows (`run.rows_per_shard_of`), above all those of
`neighbours`, `similar_pairs` and `matched_pairs`; the vectors are mapped from a file, 2 bytes a
number."""


def write_settings_page() -> str:
    """Return a page with every setting of a build and of a training run: a table per section."""
    settings = list_settings()
    lines = ["# Settings", MADE]
    lines += _settings_section("build", "Build settings", settings, _values_of_profiles())
    lines += _settings_section("train", "Training settings", settings, {})
    return "\n\n".join(lines) + "\n"


def _settings_section(
    command: str, title: str, settings: Iterable[Setting], profiles: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Yield the tables of a command's settings, one per section."""
    yield f"## {title}"
    yield f"`pairwright {command} --set NAME=VALUE`"
    sections: dict[str, list[Setting]] = {}
    for setting in settings:
        if setting.command == command:
            sections.setdefault(_section(setting.name), []).append(setting)
    for section, members in sections.items():
        if section:
            yield f"### {section}"
        yield "\n".join(_table(members, profiles))


def write_tables_page() -> str:
    """Return a page in Markdown with every table of a dataset and what it is made from."""
    stages = list_stages(BY_NAME.plugins)
    rows = [
        "| table | step | row | what its stage does | reads | looks up |",
        "|---" * 6 + "|",
    ]
    rows += map(_table_row, stages)
    types = dict.fromkeys(stage.writes.__name__ for stage in stages)
    lines = [
        "# Tables of a dataset",
        MADE,
        "The same for every profile: a stage that is off leaves its table empty or passes rows "
        "through.",
        "\n".join(rows),
        "## Columns",
        *_columns(types),
    ]
    return "\n\n".join(lines) + "\n"


def _table_row(stage: Stage) -> str:
    cells = (
        f"`{stage.name}`",
        stage.group,
        f"`{stage.writes.__name__}`",
        _cell(_description(stage)),
        _names(stage.reads),
        _names(sorted(stage.input_tables - stage.reads.keys())),
    )
    return f"| {' | '.join(cells)} |"


def _description(stage: Stage) -> str:
    """Return the first sentence of a stage's module, or of a plugin's function."""
    function = stage.function.func if isinstance(stage.function, partial) else stage.function
    described = function
    if stage.name not in BY_NAME.plugins:
        described = sys.modules[function.__module__]
    first = (described.__doc__ or "").partition("\n\n")[0]
    return " ".join(first.split())


def _columns(types: Iterable[str]) -> Iterator[str]:
    """Yield a table of columns for each type of row, with the docstrings of its fields."""
    yield "Every row has the columns of `Row`; `Row` is what the other types extend."
    module = ast.parse(inspect.getsource(rows))
    classes = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
    for name in ("Row", *types):
        lines = [f"### {name}", "", "| column | type | meaning |", "|---|---|---|"]
        body = classes[name].body
        for field, below in zip(body, [*body[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign):
                lines.append(_column(field, below))
        yield "\n".join(lines)


def _column(field: ast.AnnAssign, below: ast.stmt | None) -> str:
    """Return a field's row; ``below`` is the statement after it, perhaps its docstring."""
    meaning = ast.literal_eval(below.value) if isinstance(below, ast.Expr) else ""
    cells = (
        f"`{ast.unparse(field.target)}`",
        f"`{ast.unparse(field.annotation)}`",
        " ".join(meaning.split()),
    )
    return f"| {' | '.join(map(_cell, cells))} |"


def write_memory_page() -> str:
    """Return a page in Markdown with what the models of each GPU profile need, stage by stage."""
    loaded = _read_published("encoders")  # by the build itself, in float32
    rows = [
        "| profile | stages | model | disk | GPUs | weights | cache, activations | "
        "each GPU needs | of |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for stage, encoder in loaded.items():
        profile = "all" if stage == "removals" else "`paper-*`"
        rows.append(f"| {profile} | {stage} | {' | '.join(_loaded(encoder))} | |")
    rows.extend(_loaded_today())
    for profile, gpus in MACHINES.items():
        for cells in _served(profile, gpus):
            rows.append(f"| `{profile}` | {' | '.join(cells)} |")
    lines = [
        "# Memory of the GPU profiles",
        MADE,
        "\n".join(rows),
        SERVED_MEMORY,
        "## vLLM",
        INSTALL,
        "## From photographs to a trained adapter",
        COMMANDS,
        "\n".join(_steps()),
        "## Mining, without a GPU",
        MINED,
        "## Training",
        "\n".join(_trained()),
        TRAINED,
    ]
    return "\n\n".join(lines) + "\n"


def _steps() -> Iterator[str]:
    """Yield what each of the commands takes of a GPU of 80 GB and of the disk."""
    encoders = _read_published("encoders").values()
    served = list(_served("paper-80", MACHINES["paper-80"]))
    encoder_disk = sum(encoder.get("disk", encoder["bytes"]) for encoder in encoders) / GB
    served_disk = sum(float(cells[2]) for cells in served)
    needs = [cells[-2] for cells in served]
    needs += [_loaded(encoder)[-1] for encoder in encoders]
    build = max(float(need.split()[-1]) for need in needs)
    yield "| command | memory of the GPU | disk |"
    yield "|---|---|---|"
    yield f"| `fetch` | | {encoder_disk:.1f} and {served_disk:.1f} |"
    yield "| `doctor` | | |"
    yield (
        f"| `build` | {build:.1f} are enough, stage by stage as above; "
        "vLLM takes 0.9 of any GPU | "
        "the photographs once more, 3.6 kB of vectors each, "
        "and 2 bytes per pixel of a rejected image |"
    )
    yield _train_step()


def _train_step() -> str:
    """Return what training takes of a GPU and of the disk."""
    sizes = _read_sizes("7b")
    config = TrainConfig(objective="sft")
    checkpointing = with_field(config, ["optimiser", "gradient_checkpointing"], value=True)
    plain = demand_of(sizes, config).total / GB
    checkpointed = demand_of(sizes, checkpointing).total / GB
    adapters = 12 * count_trained(sizes, config) / GB
    model = 2 * sizes.whole / GB
    return (
        f"| `train` | {plain:.1f}, or {checkpointed:.1f} with "
        "`--set optimiser.gradient_checkpointing=true` | "
        f"{config.output.save_total_limit} checkpoints of {adapters:.1f}, and "
        f"the model with its adapters merged: {model:.1f} |"
    )


def _trained() -> Iterator[str]:
    """Yield what training takes of each GPU, by model, tuning, and number of sharded GPUs."""
    columns = (
        "model",
        "tuning",
        "GPUs",
        "trained",
        "weights",
        "gradients, AdamW",
        "gathered",
        "activations",
        "each GPU needs",
        "and without checkpointing",
        "ADPO's reference",
    )
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for name in ("2b", "7b", "72b"):
        for tuning, gpus in product(("lora", "full"), (1, 8)):
            sizes = (
                f"{size / GB:.1f}" if size else "" for size in _training_sizes(name, tuning, gpus)
            )
            yield f"| Qwen2-VL-{name.upper()} | {tuning} | {gpus} | {' | '.join(sizes)} |"


def _training_sizes(name: str, tuning: str, gpus: int) -> Sequence[float]:
    """Return the numbers of a row about training, in bytes or weights."""
    sizes = _read_sizes(name)
    plain = with_field(TrainConfig(objective="sft"), ["model", "tuning"], tuning)
    config = with_field(plain, ["optimiser", "gradient_checkpointing"], value=True)
    adpo = config.model_copy(update={"objective": "adpo"})
    share = demand_of(sizes, config, gpus=gpus)
    return (
        count_trained(sizes, config),
        share.weights,
        share.states,
        share.gathered,
        share.activations,
        share.total,
        demand_of(sizes, plain, gpus=gpus).total,
        demand_of(sizes, adpo, gpus=gpus).reference,
    )


def _read_sizes(name: str) -> Sizes:
    published = _read_published(f"qwen2-vl-{name}")
    return Sizes.from_published(published["config"], published["total_size"])


def _loaded(encoder: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of a model that the build loads itself."""
    batch = encoder["batch"]
    weights = encoder["bytes"]
    activations = encoder["activations"]
    disk = encoder.get("disk", weights)
    batch_need = weights + activations
    image_need = weights + activations // batch
    needs = f"{batch_need / GB:.1f}"
    if image_need != batch_need:
        needs = f"{image_need / GB:.1f} to {needs}"
    plural = "s" if batch > 1 else ""
    return (
        encoder["model"],
        f"{disk / GB:.1f}",
        "each",
        f"{weights / GB:.1f}",
        f"{activations / GB:.1f} of {batch} image{plural}",
        needs,
    )


def _loaded_today() -> Iterator[str]:
    """Yield the rows of the models that the profiles of today's models load."""
    for profile, stages in _read_published("encoders-today")["profiles"].items():
        for stage, encoders in stages.items():
            names = ", ".join(encoders["models"])
            size = f"{sum(encoders['models'].values()) / GB:.1f}"
            cells = (names, size, "each", size, "not counted", f"{size} and activations", "")
            yield f"| `{profile}` | {stage} | {' | '.join(cells)} |"


def _served(profile: str, gpus: tuple[int, ...]) -> Iterator[tuple[str, ...]]:
    """Yield what vLLM loads, divided as a build divides it."""
    published = _served_models()
    for name, chat in load_profile(profile).models.items():
        model = published[chat.model]
        weights = model["total_size"]
        shards = chat.launch.tensor_parallel
        copies = chat.launch.data_parallel or len(gpus) // shards
        cache = _cache_bytes(model["config"], shards, chat.launch.max_model_len)
        division = f"{shards} x {copies} copies" if copies > 1 else f"{shards}"
        shard = weights // shards
        need = shard + cache + MARGIN
        limit = chat.launch.gpu_memory_utilization * min(gpus)
        yield (
            f"texts of `models.{name}`",
            chat.model,
            f"{weights / GB:.1f}",
            division,
            *(f"{size / GB:.1f}" for size in (shard, cache, need, limit)),
        )


def _served_models() -> dict[str, dict[str, Any]]:
    """Return the published configs and sizes of served models, by their names."""
    models: dict[str, dict[str, Any]] = {}
    for path in PUBLISHED.glob("*.json"):
        published = _read_published(path.stem)
        if "model" in published:
            models[published["model"]] = published
    return models


def _cache_bytes(config: dict[str, Any], shards: int, tokens: int) -> int:
    """Return the bytes of the keys and values of a sequence on each GPU, in 16 bits."""
    config = config.get("text_config", config)
    heads = config["num_attention_heads"]
    head_width = config.get("head_dim", config["hidden_size"] // heads)
    key_value_heads = max(1, config.get("num_key_value_heads", heads) // shards)
    return 2 * config["num_hidden_layers"] * key_value_heads * head_width * 2 * tokens


def _read_published(name: str) -> dict[str, Any]:
    return json.loads((PUBLISHED / f"{name}.json").read_bytes())


def _values_of_profiles() -> dict[str, list[str]]:
    """Return the values that profiles give settings other than the default, by setting."""
    profiles: dict[tuple[str, str], list[str]] = defaultdict(list)
    for profile in profile_names():
        for setting in list_settings(profile=profile):
            if setting.command == "train" or setting.value == setting.default:
                continue
            if setting.name in ("name", "about"):
                continue
            name = setting.name
            model = ""
            if name.startswith("models."):
                _, model_name, field = name.split(".", 2)
                name = SERVED + field
                model = f" {model_name}"
            profiles[name, f"{model}: `{as_typed(setting.value)}`"].append(profile)
    values: dict[str, list[str]] = defaultdict(list)
    for (name, value), names in profiles.items():
        values[name].append(f"{', '.join(names)}{value}")
    return values


def _section(name: str) -> str:
    """Return the heading that a setting stands under."""
    section = name.rpartition(".")[0]
    return section.replace(SERVED.rstrip("."), "models.NAME")


def _table(settings: Iterable[Setting], profiles: Mapping[str, Sequence[str]]) -> Iterator[str]:
    yield "| name | type | default | profiles | meaning |"
    yield "|---|---|---|---|---|"
    for setting in settings:
        values = [text for text in (setting.type, setting.range) if text]
        default = "required" if setting.default is None else f"`{as_typed(setting.default)}`"
        cells = (
            f"`{setting.name.rpartition('.')[2]}`",
            "; ".join(values),
            default,
            "; ".join(profiles.get(setting.name, ())),
            setting.meaning,
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
