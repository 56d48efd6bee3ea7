"""Averages over two real processes."""

import subprocess
import sys

import pytest

CODE = """
import torch
from pairwright.tasks.training.ranks import join_ranks, leave_ranks, own_rank
from pairwright.tasks.training.retriever.average import make_average

join_ranks()
average = make_average()
one = torch.full((2, 3), float(own_rank() + 1)).requires_grad_()
two = torch.arange(4.0)[::2] * (1 - 2 * own_rank())
three = torch.tensor([own_rank() * 1e-12 + 1], dtype=torch.float64)
average([one, two, three])
assert one.tolist() == [[1.5] * 3] * 2, one
assert two.tolist() == [0.0, 0.0], two
assert three.item() == 1 + 0.5e-12, three
leave_ranks()
print("averaged", flush=True)
"""


@pytest.mark.slow
def test_two_processes_end_with_the_mean(tmp_path):
    script = tmp_path / "average.py"
    script.write_text(CODE)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("averaged") == 2


def test_one_process_needs_no_average():
    from pairwright.tasks.training.retriever.average import make_average

    assert make_average() is None
