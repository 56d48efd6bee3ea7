"""A GPU that computes nothing: tensors on it have shapes, types and a device, and read back as
ones.

PyTorch's fake tensors refuse what a GPU would refuse: operands on two devices. What comes back to
the CPU (``cpu``, ``tolist``, ``item``) is real ones of the same shape, so that whole stages run to
their end. A backward pass asks the driver and cannot be had: in its place, ``backward`` gives every
weight on the GPU a gradient of its shape.
"""

import ctypes
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from pairwright.tasks.models import devices

LIBRARY = Path(torch.__file__).parent / "lib/libc10.so"
PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "convolution", "conv2d", "linear", "matmul", "einsum")
GUARDS, OF_CUDA, OF_US = "_ZN3c104impl26device_guard_impl_registryE", 1, 20
"""Whom PyTorch asks for a device's streams (c10's ``device_guard_impl_registry``): CUDA's own,
which ends the process where there is no driver, and that of a backend written in Python."""
CUDA = {
    "is_available": True,
    "device_count": 1,
    "is_bf16_supported": True,
    "current_device": 0,
    "empty_cache": None,
    "set_device": None,
    "get_device_capability": (9, 0),
}


class FakeGpu(FakeTensorMode):
    """The device: a model that is moved to it loses its numbers; within ``computing``, tensors may
    be made on it."""

    def __init__(self):
        super().__init__(allow_non_fake_inputs=True)
        self.kinds, self.products, self.largest = set(), set(), 0
        self.weights, self.inner = [], False

    @contextmanager
    def computing(self):
        """Let what follows compute on the device, and note the types of its results, and the bytes
        of the largest."""
        with self, sdpa_kernel(SDPBackend.MATH):  # others ask what the device can do
            yield self

    def dispatch(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not _is_cuda(args, kwargs) and not any(
            isinstance(one, FakeTensor) for one in tree_leaves((args, kwargs))
        ):
            with _disable_current_modes():
                return func(*args, **kwargs)  # what is on the CPU is real
        inner, self.inner = (
            self.inner,
            True,
        )  # what fake tensors take an operation apart into is no work of the device
        try:
            found = self._compute(func, types, args, kwargs)
        finally:
            self.inner = inner
        for one in () if inner else tree_leaves(found):
            if isinstance(one, torch.Tensor) and one.device.type == "cuda":
                self.kinds.add(one.dtype)
                self.largest = max(self.largest, one.numel() * one.element_size())
                if func._schema.name.removeprefix("aten::") in PRODUCTS:
                    self.products.add(one.dtype)
        return found

    def _compute(self, func, types, args, kwargs):
        if func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.item.default):
            return real(args[0]).item()
        if func._schema.name in ("aten::_to_copy", "aten::to") and _is_cuda(
            args, kwargs
        ):  # of what may be a constant
            kinds = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.dtype)]
            with self:
                return torch.empty(
                    tuple(args[0].shape), dtype=[*kinds, args[0].dtype][0], device="cuda"
                )
        return super().dispatch(func, types, args, kwargs)

    def take(self, module, *args, **kwargs):
        """``Module.to`` that replaces the tensors of a module, since a real tensor cannot become a
        fake one."""
        device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        if device is None or device.type != "cuda":
            return self.to(module, *args, **kwargs)
        for part in module.modules():
            for held in (part._parameters, part._buffers):
                for name, tensor in held.items():
                    if tensor is not None:
                        held[name] = self._like(tensor, dtype)
        return module

    def take_tensor(self, tensor, *args, **kwargs):
        """``Tensor.to``."""
        if isinstance(tensor, FakeTensor) or kwargs.keys() & {"copy", "memory_format"}:
            return self.tensor_to(tensor, *args, **kwargs)
        device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        on_gpu = device is not None and device.type == "cuda"
        return self._like(tensor, dtype) if on_gpu else self.tensor_to(tensor, *args, **kwargs)

    def _like(self, tensor, dtype):
        with self:
            kind = dtype if dtype and tensor.is_floating_point() else tensor.dtype
            made = torch.empty(tuple(tensor.shape), dtype=kind, device="cuda:0")
        if isinstance(tensor, torch.nn.Parameter):
            made = torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
            self.weights.append(made)
        return made

    def backward(self, loss):
        """``Tensor.backward`` of a loss on the device."""
        assert loss.requires_grad
        assert loss.device.type == "cuda"
        for weight in self.weights:
            if weight.requires_grad:
                weight.grad = torch.empty_like(weight)


def _is_cuda(args, kwargs):
    return any(
        isinstance(one, torch.device) and one.type == "cuda" for one in (*args, *kwargs.values())
    )


def pick(tensor, index):
    """Index a tensor as Python does."""
    parts = list(index) if isinstance(index, tuple) else [index]
    used = sum(part is not None and part is not Ellipsis for part in parts)
    if Ellipsis not in [part for part in parts if not isinstance(part, torch.Tensor)]:
        parts.append(Ellipsis)
    place, tensors = 0, {}
    for part in parts:
        if part is None:
            tensor, place = torch.ops.aten.unsqueeze(tensor, place), place + 1
        elif part is Ellipsis:
            place += tensor.ndim - place - (used - sum(map(_takes, parts[: parts.index(Ellipsis)])))
        elif isinstance(part, int):
            tensor = torch.ops.aten.select(tensor, place, part)
        elif isinstance(part, slice):
            tensor = torch.ops.aten.slice(tensor, place, part.start, part.stop, part.step or 1)
            place += 1
        else:
            tensors[place] = (
                part if isinstance(part, torch.Tensor) else torch.tensor(part, device=tensor.device)
            )
            place += 1
    if not tensors:
        return tensor
    return torch.ops.aten.index(tensor, [tensors.get(n) for n in range(max(tensors) + 1)])


def _takes(part):
    return part is not None and part is not Ellipsis


def put(tensor, index, value):
    """Assign to a part of a tensor."""
    value = value if isinstance(value, torch.Tensor) else torch.tensor(value, device=tensor.device)
    if any(
        isinstance(part, torch.Tensor | list)
        for part in (index if isinstance(index, tuple) else (index,))
    ):
        return
    torch.ops.aten.copy_(pick(tensor, index), value)


def real(tensor):
    """Return ones on the CPU."""
    with _disable_current_modes():
        return torch.ones(tuple(tensor.shape), dtype=tensor.dtype)


class Guard(torch._C._acc.DeviceGuard):
    """One device, one stream."""

    def type_(self):
        return torch._C._autograd.DeviceType.CUDA


@cache
def guard_nothing():
    """Let graphs be made of what is on the device, without its driver."""
    guard = Guard()
    torch._C._acc.register_python_privateuseone_device_guard(guard)
    guards = (ctypes.c_void_p * (OF_US + 1)).in_dll(ctypes.CDLL(str(LIBRARY)), GUARDS)
    guards[OF_CUDA] = guards[OF_US]
    return guard


def plug_in(monkeypatch) -> FakeGpu:
    """Return what is the machine's only GPU from now on."""
    gpu = FakeGpu()
    guard_nothing()
    gpu.to, gpu.tensor_to = torch.nn.Module.to, torch.Tensor.to
    monkeypatch.setattr(devices, "DRIVERS", ("/dev/null",))
    for name, value in CUDA.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value, **__: value)
    monkeypatch.setattr(
        torch.nn.Module, "to", lambda module, *args, **kwargs: gpu.take(module, *args, **kwargs)
    )
    monkeypatch.setattr(
        torch.Tensor, "to", lambda tensor, *args, **kwargs: gpu.take_tensor(tensor, *args, **kwargs)
    )
    for name in ("tensor", "as_tensor"):  # which ask the driver before they ask the mode
        make = getattr(torch, name)
        monkeypatch.setattr(
            torch, name, lambda *args, device=None, make=make, **how: make(*args, **how).to(device)
        )
    reading = {
        "cpu": real,
        "numpy": lambda tensor: np.ones(
            tuple(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch.")
        ),
        "__float__": lambda _: 1.0,
        "backward": gpu.backward,
        "isinf": lambda tensor: torch.zeros(tuple(tensor.shape), dtype=torch.bool),
        "tolist": lambda tensor: real(tensor).tolist(),
    }
    monkeypatch.setattr(FakeTensor, "__getitem__", pick, raising=False)
    monkeypatch.setattr(FakeTensor, "__setitem__", put, raising=False)
    monkeypatch.setattr(
        FakeTensor, "__invert__", lambda one: torch.ops.aten.bitwise_not(one), raising=False
    )
    contiguous = torch.contiguous_format
    monkeypatch.setattr(
        FakeTensor,
        "contiguous",
        lambda one, **_: torch.ops.aten.clone(one, memory_format=contiguous),
        raising=False,
    )
    for name, read in reading.items():
        monkeypatch.setattr(
            FakeTensor, name, lambda tensor, *_, read=read, **__: read(tensor), raising=False
        )
    return gpu
