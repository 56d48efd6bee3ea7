"""Load the key of a served model, from the environment or a Prefect block. It goes to the server and nowhere else."""

import json
import os
from functools import lru_cache
from typing import NoReturn

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.serving.loop import run

BLOCK = "block:"
HIDDEN = "***"


class Key(str):
    """Be a server's key, or none (an empty one). Only what is sent to the server may be made of it."""

    __slots__ = ("name",)
    name: str
    """The name by which the profile knows it."""

    @classmethod
    def of(cls, name: str, value: str) -> "Key":
        """Return a key under its name."""
        key = cls(value)
        key.name = name
        return key

    def __repr__(self) -> str:
        return f"Key({self.name!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key stays in its process: pass its name")

    def hide(self, text: str) -> str:
        """Return a text of the server's without the key, which it may repeat."""
        if not self:
            return text
        return text.replace(str(self), HIDDEN).replace(json.dumps(self)[1:-1], HIDDEN)

    @property
    def place(self) -> str:
        """Return where the key is kept, in words."""
        if self.name.startswith(BLOCK):
            return f"the Prefect Secret block {self.name.removeprefix(BLOCK)!r}"
        return f"the environment variable {self.name}"


def load_key(name: str, *, field: str = "models.*") -> Key:
    """Return the key that ``ChatConfig.key`` names; an empty one where there is none, and none is sent.

    Args:
        name: of the environment variable, or of a block.
        field: what the profile calls the model, for messages; where that is not known, any.

    Raises:
        ConfigError: the block cannot be loaded, or what was found is no key.
    """
    try:
        key = Key.of(name, _read(name).strip())
        if any(not "!" <= character <= "~" for character in key):
            raise ConfigError(f"{key.place} holds more than a key (spaces, or letters beyond ASCII): set it again")
    except ConfigError as error:
        raise ConfigError(f"{field}.key: {error}") from error.__cause__
    return key


def _read(name: str) -> str:
    return _load_block(name.removeprefix(BLOCK)) if name.startswith(BLOCK) else os.environ.get(name, "")


@lru_cache
def _load_block(name: str) -> str:
    """Return what a Secret block holds; it is asked for once in a process."""
    from prefect.blocks.system import Secret
    from prefect.settings import PREFECT_API_URL

    if not PREFECT_API_URL.value():  # Prefect would start a server of its own, which knows no blocks
        raise ConfigError(f"{BLOCK}{name} is kept by a Prefect server: set PREFECT_API_URL to its address")
    try:
        held = run(Secret.aload(name)).value.get_secret_value()
    except ValueError as error:
        raise ConfigError(
            f"the Prefect server has no Secret block {name!r}: make it under Blocks in its pages, or "
            f'with `Secret(value=...).save("{name}")` of prefect.blocks.system'
        ) from error
    except Exception as error:
        kind = type(error).__name__
        raise ConfigError(f"{BLOCK}{name}: {PREFECT_API_URL.value()} does not answer ({kind})") from error
    if not isinstance(held, str) or not held:
        raise ConfigError(f"the Prefect Secret block {name!r} holds no text: set it again")
    return held
