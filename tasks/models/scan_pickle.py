"""Say what a pickle would do, without doing it.

Reads the opcodes alone, by ``pickletools``, which runs and imports nothing. Bound: ``MAX_OPCODES`` per pickle. A stream
is read no further than its pickle goes.
"""

import pickletools
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import IO

PLAIN = re.compile(
    r"collections\.(OrderedDict|Counter)"
    r"|torch\._utils\._rebuild_(tensor|tensor_v2|tensor_v3|parameter)"
    r"|torch\.[A-Za-z0-9]+Storage|torch\.storage\.(Untyped|Typed)Storage"
    r"|torch\.nn\.parameter\.Parameter|torch\.Size|torch\.device"
    r"|torch\.(bool|b?float\d+\w*|u?int\d+|complex\d+)"
)
"""What a dictionary of tensors, or a training state beside it, is made of: part of what ``weights_only`` lets pass."""
MAX_OPCODES = 1_000_000
"""A tensor takes about forty, so that this is 25,000 tensors (ours)."""
MAX_SHARING = 64
"""How many times larger than the pickle the objects may be, were no part of them shared (ours). Tuples of tuples that
share all their parts take ever more time to hash: thirty opcodes, a thousand million steps."""
MAX_PROTOCOL = 3
"""PyTorch writes 2, and its careful reader knows nothing of the newer ones."""
TRUST = "If it comes from somebody you trust, convert it to safetensors where it was made, and name that file"
EXTENSIONS = ("EXT1", "EXT2", "EXT4")


class RefusedError(Exception):
    """Say why a pickle is not read."""


@dataclass(slots=True)
class _Machine:
    """Follow a pickle's stack: of each value only how large it is unshared, and its text if it is one."""

    stack: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    marks: list[int] = field(default_factory=list[int])
    memo: dict[int, tuple[int, str]] = field(default_factory=dict[int, tuple[int, str]])
    largest: int = 0

    def step(self, opcode: pickletools.OpcodeInfo, argument: object) -> None:
        """Do to the stack what one opcode does."""
        name = opcode.name
        if name == "MARK":
            self.marks.append(len(self.stack))
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = self.stack[-1]
        elif "PUT" in name:
            self.memo[_number(argument)] = self.stack[-1]
        elif "GET" in name:
            self.stack.append(self.memo[_number(argument)])
        else:
            self._change(opcode, argument)

    def _change(self, opcode: pickletools.OpcodeInfo, argument: object) -> None:
        takes = sum(kind.name not in ("mark", "stackslice") for kind in opcode.stack_before)
        if opcode.name == "POP" and self.marks and self.marks[-1] == len(self.stack):
            self.marks.pop()
            return
        taken = 0
        if any(kind.name == "mark" for kind in opcode.stack_before):
            begin = self.marks.pop()
            taken = sum(size for size, _ in self.stack[begin:])
            del self.stack[begin:]
        for _ in range(takes):
            taken += self.stack.pop()[0]
        made = (taken + 1, argument if isinstance(argument, str) else "")
        self.stack.extend([made] * len(opcode.stack_after))
        self.largest = max(self.largest, taken)


def scan_pickle(stream: IO[bytes], *, idle: Collection[str] = ()) -> None:
    """Read one pickle's opcodes, to its end.

    Args:
        stream: is read no further than the pickle goes.
        idle: names that it may have beside those of tensors; whoever reads it must give them nothing to do.

    Raises:
        RefusedError: it wants more than tensors and plain values, has no end or is absurd; the message says which.
    """
    machine, count, protocol = _Machine(), 0, 0
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(stream), start=1):
            _refuse_global(_wanted(opcode.name, argument, machine), idle)
            if count > MAX_OPCODES:
                raise RefusedError(f"its pickle has over {MAX_OPCODES:,} opcodes")
            if opcode.name == "PROTO":
                protocol = _number(argument)
            machine.step(opcode, argument)
    except RefusedError:
        raise
    except Exception as error:  # pickletools and broken stacks raise errors of many kinds
        raise RefusedError(f"it is cut short, or no pickle ({type(error).__name__} after {count} opcodes)") from error
    if protocol > MAX_PROTOCOL:
        raise RefusedError(f"its pickle is of protocol {protocol}, not PyTorch's 2. {TRUST}")
    if machine.largest > MAX_SHARING * count + 1000:
        raise RefusedError(f"its objects share parts so that {count} opcodes stand for {machine.largest:,} values")


def _wanted(name: str, argument: object, machine: _Machine) -> str:
    """Return the global that an opcode names, as ``module.name``, or nothing."""
    if name in ("GLOBAL", "INST"):
        return str(argument).replace(" ", ".", 1)
    if name == "STACK_GLOBAL":
        return ".".join(text or "?" for _, text in machine.stack[-2:])
    return f"number {argument} of copyreg's extensions" if name in EXTENSIONS else ""


def _refuse_global(wanted: str, idle: Collection[str]) -> None:
    if wanted and wanted not in idle and not PLAIN.fullmatch(wanted):
        raise RefusedError(f"it wants {wanted[:120]!r}, which is more than tensors. {TRUST}")


def _number(argument: object) -> int:
    if not isinstance(argument, int | str):
        raise RefusedError("an opcode has no number")
    return int(argument)
