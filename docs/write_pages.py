"""Write the pages that list settings, tables and memory, from the same source as what they describe: ``make docs``.

A test holds that the committed pages are what the source gives.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from pairwright.flows.list_settings import Setting, as_typed, list_settings
from pairwright.flows.load_profile import load_profile, profile_names
from pairwright.flows.pipeline import TableSummary, list_tables
from pairwright.tasks.serving.memory import GB, MARGIN, Needs, divide

MADE = "<!-- Made by `make docs`. Change the source, not this page. -->"
SERVED = "models.chat."
"""Every served model has these settings, under its own name."""
PUBLISHED = Path(__file__).parents[1] / "tests" / "fixtures" / "published"
"""Configs and sizes of the models that profiles name; a test holds them against the libraries' own models."""
MACHINES = {"gpu-24": (24 * 10**9,), "gpu-80": (80 * 10**9,), "gpu-8x80": (80 * 10**9,) * 8}
INSTALL = """\
vLLM's pins and this project's exclude each other (Prefect needs a newer FastAPI), so that it has an environment of its
own: 0.11 or newer; from 0.18 on it answers what it was asked before it ends. A build finds it on the PATH, or where
`models.chat.launch.command` says:

```console
$ python3 -m venv ~/vllm && ~/vllm/bin/python -m pip install vllm
$ ln -s ~/vllm/bin/vllm ~/.local/bin/vllm
```

Then, from photographs to a trained adapter:

```console
$ pairwright fetch --profile gpu-80 --served
$ pairwright doctor --profile gpu-80
$ pairwright build PHOTOS --profile gpu-80 --out album
$ pairwright train album --objective sft --model Qwen/Qwen2-VL-7B-Instruct
```"""


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
    tables = list_tables()
    about = [f"| `{one.name}` | {one.group} | `{one.row}` | {_cell(one.about)} |" for one in tables]
    parts = [
        "# Tables of a dataset",
        MADE,
        "The same for every profile: a stage that is off leaves its table empty or passes rows through.",
        "\n".join(["```mermaid", "flowchart LR", *_picture(tables), "```"]),
        "\n".join(["| table | step | row | what its stage does |", "|---|---|---|---|", *about]),
    ]
    return "\n\n".join(parts) + "\n"


def write_memory_page() -> str:
    """Return a page in Markdown with what the models of each GPU profile need, stage by stage."""
    loaded = _read_published("encoders")  # by the build itself, in float32
    lines = [
        "| profile | stages | model | disk | GPUs | weights | cache | each GPU needs | of |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for stage, one in loaded.items():
        disk, each = (f"{size / GB:.1f}" for size in (one.get("disk", one["bytes"]), one["bytes"]))
        lines.append(f"| all | {stage} | {one['model']} | {disk} | each | {each} | | | |")
    for profile, gpus in MACHINES.items():
        lines += [f"| `{profile}` | {' | '.join(cells)} |" for cells in _served(profile, gpus)]
    about = (
        "In GB. *Weights* and *cache* are those on each GPU; the cache holds a sequence of `max_model_len` tokens, and "
        f"what is left of the GPU holds more of them at once. To compute, {MARGIN / GB:.0f} GB are set aside: CUDA's "
        "context and graphs, the activations of a full batch, images. *Of* is `gpu_memory_utilization` of the GPU. "
        "`build` and `doctor` compare the same numbers with the GPUs of the machine and the models on it, and name the "
        "settings that fit. Models of the build itself compute in batches that are halved until they fit, one stage "
        "after the other; a stage has let go of the GPU when the next begins."
    )
    return "\n\n".join(["# Memory of the GPU profiles", MADE, "\n".join(lines), about, "## vLLM", INSTALL]) + "\n"


def _served(profile: str, gpus: tuple[int, ...]) -> Iterator[tuple[str, ...]]:
    """Yield what vLLM loads, divided as a build divides it."""
    known = {one["model"]: one for path in PUBLISHED.glob("*.json") if "model" in (one := _read_published(path.stem))}
    for name, chat in load_profile(profile).models.items():
        needs = Needs.of(known[chat.model]["config"], known[chat.model]["total_size"])
        shared, copies = divide(chat.launch, needs, gpus)
        tokens, limit = chat.launch.max_model_len, chat.launch.gpu_memory_utilization * min(gpus)
        sizes = (needs.weights / shared, needs.cache(tokens, shared), needs.on_each(tokens, shared), limit)
        spread = f"{shared} x {copies} copies" if copies > 1 else f"{shared}"
        disk, *each = (f"{size / GB:.1f}" for size in (needs.weights, *sizes))
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
            _, model, field = one.name.split(".", 2) if one.name.startswith("models.") else ("", "", "")
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


def _picture(tables: Iterable[TableSummary]) -> Iterator[str]:
    """Yield the lines of a Mermaid flowchart: a box per step, an arrow from what a table is made from."""
    tables = list(tables)
    for group, inner in groupby(tables, key=lambda one: one.group):
        yield f"  subgraph step_{group} [{group}]"
        yield from (f"    {one.name}" for one in inner)
        yield "  end"
    for one in tables:
        yield from (f"  {name} --> {one.name}" for name in one.reads)
        yield from (f"  {name} -.-> {one.name}" for name in one.uses)


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


PAGES = {"settings.md": write_settings_page, "tables.md": write_tables_page, "memory.md": write_memory_page}

if __name__ == "__main__":
    for name, write in PAGES.items():
        Path(__file__).with_name(name).write_text(write(), encoding="utf-8")
