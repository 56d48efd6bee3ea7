"""Choose the renderer's variant: the GPU's where there is one and it works, else the CPU's.

Reads the device folder. A machine without a GPU pays nothing; with one, a child process tries it once, since a broken
driver can take the whole process down.
"""

import logging
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

log = logging.getLogger(__name__)

CPU, GPU = "scalar_rgb", "cuda_ad_rgb"
DEVICES = (Path("/dev/nvidiactl"), Path("/dev/dxg"))
PROBE = f"""
from pairwright.schemas.config import ScenesConfig
from pairwright.tasks.sources.scene.world import photograph_world
config = ScenesConfig(photographs=2, width=128, height=96, samples=1)
assert all(taken and taken.picture.mean() > 20 for taken in photograph_world(config, 0, variant={GPU!r}))
"""
"""Takes two photographs; a wrong object index shows as things that cannot be seen."""


@lru_cache(maxsize=1)
def choose_variant(devices: tuple[Path, ...] = DEVICES, *, timeout_s: float = 120) -> str:
    """Return the name of the variant that renders here."""
    if not any(device.exists() for device in devices):
        return CPU
    try:
        command = [sys.executable, "-c", PROBE]
        paths = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(command, capture_output=True, timeout=timeout_s, check=False, env=paths)  # noqa: S603 - fixed text
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("scenes are rendered on the CPU: the GPU did not answer (%s)", error)
        return CPU
    if done.returncode == 0:
        return GPU
    log.warning("scenes are rendered on the CPU: the GPU variant ends with %d", done.returncode)
    return CPU
