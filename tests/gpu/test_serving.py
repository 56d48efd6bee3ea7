"""A vLLM that is launched as a build does it, with a tiny model: it answers, holds to a grammar,
lets go of the GPU.

``PAIRWRIGHT_VLLM`` names the ``vllm`` of its environment where none is on the PATH.
"""

import time
from pathlib import Path
from typing import Any

import pytest

from pairwright.schemas.rows import CaptionRow, Dropped
from pairwright.schemas.writing import CaptionsConfig, ChatConfig, LaunchConfig
from pairwright.tasks.captioning.describe_images import describe_images
from pairwright.tasks.serving.client import close_clients
from pairwright.tasks.serving.launch import Servers
from pairwright.tasks.serving.probe import probe_model
from tests.fixtures.pictures import photograph
from tests.fixtures.served_models import write_qwen2_vl
from tests.gpu.machine import find_vllm
from tests.tasks.models.samples import photographs

pytestmark = pytest.mark.gpu
SHARE = 0.4
"""Of the GPU: the model and its cache need 2 GB; this process has some memory, too."""
LEFT_BYTES = 512 << 20
"""What may be missing of the GPU's memory when the server has ended."""


def free_bytes(dry: bool) -> int:
    if dry:
        return 0
    import torch

    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info(0)[0]


def test_a_launched_vllm(dry: bool, tmp_path: Path, figure: Any):
    if not (command := find_vllm()):
        pytest.skip(
            "no vllm on the PATH (docs/reference/memory.md); PAIRWRIGHT_VLLM=/.../bin/vllm "
            "names "
            "one"
        )
    launch = LaunchConfig(
        enabled=True,
        command=(command,),
        max_model_len=4096,
        gpu_memory_utilization=SHARE,
        start_timeout_seconds=900,
    )
    asked = ChatConfig(model=str(write_qwen2_vl(tmp_path / "qwen2-vl")), launch=launch)
    images = [photograph(pixels) for pixels in list(photographs().values())[:6]]
    before, began = free_bytes(dry), time.monotonic()
    try:
        with Servers(tmp_path / "logs") as servers:
            served = servers.serve(asked, field="models.chat")
            seconds = time.monotonic() - began
            found = probe_model(served.model_copy(update={"launch": LaunchConfig()}), images=2)
            rows = list(describe_images(images, CaptionsConfig(writer="served", chat=found)))
    finally:
        close_clients()
    missing, written = before - free_bytes(dry), sum(isinstance(row, CaptionRow) for row in rows)
    figure(f"answers after {seconds:.0f} s; structured output: {found.structured_output}")
    figure(f"{written} of {len(images)} images described; {missing / 2**20:.0f} MiB not given back")
    assert found.structured_output == "vllm"
    assert all(isinstance(row, CaptionRow | Dropped) for row in rows), rows
    assert written, rows
    assert missing <= LEFT_BYTES
