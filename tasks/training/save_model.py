"""Make the finished model of a run such that ``from_pretrained`` loads it, and servers of models do.

Reads and writes the folder into which the Trainer has saved. Adapters are merged into the weights that they were
trained on, and lie beside them in ``adapters/``; without ``output.merge_adapters`` they are all that is written, and
loading them needs peft and the model named in ``adapter_config.json``. Adapters that were trained upon such a run are
merged in any case. Needs PyTorch and peft.
"""

import json
import shutil
from pathlib import Path

from pairwright.schemas.differential import SIZES, WEIGHTS
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.training.find_model import ADAPTER_WEIGHTS, ADAPTERS, TUNED, find_base
from pairwright.tasks.training.load_model import choose_storage, load_plain
from pairwright.tasks.training.tune_model import merge_adapters

FOLDER = "adapters"
CACHE = "models--"
"""How the folder of a model begins in the Hub's local cache; its commit is a folder in ``snapshots``."""
OWN = (ADAPTERS, ADAPTER_WEIGHTS, "README.md", TUNED)
"""What peft writes, and the weights that were trained beside adapters."""
NOT_NEEDED = "training_args.bin"
"""A pickle, which only the Trainer's own checkpoints need."""


def finish_model(saved: Path, start: Path, config: TrainConfig) -> None:
    """Complete what the Trainer saved; of several processes, one does.

    Args:
        saved: the folder: adapters or weights, and the processor.
        start: the model that the run started from.
        config: of the run.

    Raises:
        OSError, RuntimeError, SafetensorError: the disk refuses.
        ModelError: the start is no longer there.
    """
    (saved / NOT_NEEDED).unlink(missing_ok=True)
    if config.model.tuning == "lora":
        below = find_base(start)
        _name_base(saved / ADAPTERS, start, of_adapters=below is not None)
        if (
            config.output.merge_adapters or below
        ):  # nothing on the disk holds the weights that adapters upon adapters belong to
            _merge(saved, start, config)


def _name_base(path: Path, start: Path, *, of_adapters: bool) -> None:
    """Let adapters name a model of the Hub as it is called there, not where this machine keeps it.

    And upon adapters those, not what lies below them, as peft has it. Only at the end: peft would ask the Hub about it
    at each checkpoint.
    """
    if of_adapters:
        path.write_text(json.dumps(json.loads(path.read_text()) | {"base_model_name_or_path": str(start)}, indent=2))
        return
    cached = start.parent.parent.name
    if start.parent.name == "snapshots" and cached.startswith(CACHE):
        own = json.loads(path.read_text())
        own |= {"base_model_name_or_path": cached.removeprefix(CACHE).replace("--", "/"), "revision": start.name}
        path.write_text(json.dumps(own, indent=2))


def _merge(saved: Path, start: Path, config: TrainConfig) -> None:
    """Move the adapters aside, and write the start's weights with them merged in."""
    aside = saved / FOLDER
    aside.mkdir(exist_ok=True)
    for name in OWN:
        if (saved / name).exists():
            (saved / name).replace(aside / name)
    for name in (SIZES, WEIGHTS):  # differential perception stays beside the merged weights, too
        if (saved / name).exists():
            shutil.copyfile(saved / name, aside / name)
    model = load_plain(start, config.model, dtype=choose_storage(config))
    merge_adapters(model, aside).save_pretrained(saved)
