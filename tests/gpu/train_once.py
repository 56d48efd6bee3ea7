"""Train a run that a test has written, in a process of its own or one of several; print what was
computed on.

Started as ``[torchrun --nproc-per-node 2] tests/gpu/train_once.py FOLDER``.
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from pairwright.tasks.store.files import Folder
from pairwright.tasks.training.fit_preferences import fit_preferences
from pairwright.tasks.training.objective import Job
from pairwright.tasks.training.ranks import gather_ranks, join_ranks, leave_ranks, own_rank
from pairwright.tasks.training.runs import Run


def main(folder: str) -> None:
    join_ranks()
    run = Run(Path(folder) / "runs/run")
    config = run.config()
    assert config is not None
    ended = fit_preferences(
        Job(run=run, config=config, dataset=Folder(folder), start=Path(config.model.name))
    )
    gpu = torch.cuda.is_available()
    found = {
        "finished": ended.finished,
        "device": torch.cuda.get_device_name() if gpu else "CPU",
        "places": gather_ranks(torch.cuda.current_device() if gpu else own_rank()),
        "memory": torch.cuda.max_memory_allocated() / 2**20 if gpu else 0.0,
        "backend": dist.get_backend() if dist.is_initialized() else "",
    }
    if own_rank() == 0:
        print(json.dumps(found), flush=True)
    leave_ranks()


if __name__ == "__main__":
    main(sys.argv[1])
