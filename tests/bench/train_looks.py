"""Look into the steps of a training: how long its parts take, or what its kernels are.

Works on any trainer of transformers whose model is a Qwen2.5-VL, ours or TRL's. A GPU is waited for at the borders of
the parts, so that the steps are a little slower than those that are timed.
"""

import time
from collections import defaultdict
from typing import Any

import torch
from transformers import TrainerCallback

OWN, PACKING, REST = "rows waited for, logging", "sequences, masks", "rest of both passes"
VISION, LOGITS, BACKWARD, STEP = "vision tower", "logits", "loss, backward, clipping", "optimiser"
PARTS = (OWN, PACKING, VISION, "language model, reference", "language model, policy", LOGITS, REST, BACKWARD, STEP)
TOKENS = "tokens of the language model, both passes"
KERNELS = 25
"""Lines of the table."""


class Clock(TrainerCallback):
    """Add up the seconds of each part of the steps after the first few."""

    def __init__(self, models: list[Any], warm: int) -> None:
        self.warm, self.parts, self._last, self._on = warm, defaultdict[str, float](float), 0.0, False
        for model in models:
            self._attach(model)

    def _attach(self, model: Any) -> None:
        named = {name.rpartition(".")[2]: part for name, part in model.named_modules()}
        tower, decoder, head = named["visual"], named["language_model"], model.get_output_embeddings()
        for part, name in ((tower, VISION), (head, LOGITS)):
            part.register_forward_pre_hook(lambda *_: self.mark(REST))
            part.register_forward_hook(lambda *_, name=name: self.mark(name))
        decoder.register_forward_pre_hook(lambda *_: self.mark(REST))
        decoder.register_forward_hook(self._decoded)

    def _decoded(self, module: Any, given: Any, found: Any) -> None:
        self.mark(f"language model, {'policy' if torch.is_grad_enabled() else 'reference'}")
        if self._on:
            self.parts[TOKENS] += found[0].shape[:-1].numel()

    def mark(self, name: str) -> None:
        """Count what has passed since the last mark as time of a part."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        now = time.perf_counter()
        if self._on:
            began = name == REST and self._first
            self.parts[PACKING if began else name] += now - self._last
            self._first = self._first and name != REST
        self._last = now

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Close what lies between two steps."""
        self.mark(OWN)
        self._on, self._first = state.global_step >= self.warm, True

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        """Close the backward pass."""
        self.mark(BACKWARD)

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Close the step."""
        self.mark(STEP)


class Kernels(TrainerCallback):
    """Let PyTorch's profiler look at the steps after the first few."""

    def __init__(self, warm: int) -> None:
        kinds = [torch.profiler.ProfilerActivity.CPU]
        self.gpu = torch.cuda.is_available()
        kinds += [torch.profiler.ProfilerActivity.CUDA] if self.gpu else []
        self.warm, self.profile = warm, torch.profiler.profile(activities=kinds)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin to look."""
        if state.global_step == self.warm:
            self.profile.start()

    def table(self) -> str:
        """Return what took longest."""
        self.profile.stop()
        order = "self_device_time_total" if self.gpu else "self_cpu_time_total"
        return self.profile.key_averages().table(sort_by=order, row_limit=KERNELS, max_name_column_width=70)
