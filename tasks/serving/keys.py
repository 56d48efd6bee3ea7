"""Key of a served model, from the environment or a Prefect block; it is sent to the server and nowhere else."""

import json
import os
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NoReturn

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.serving.loop import run

BLOCK = "block:"
HIDDEN = "***"


@dataclass(frozen=True)
class Key:
    """Key of a server; empty: none is sent. Its value must only be used in requests."""

    name: str  # name in the profile
    value: str = field(repr=False)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key stays in its process: pass its name")

    def hide(self, text: str) -> str:
        """Return a server's text without the key."""
        return text.replace(self.value, HIDDEN) if self.value else text

    def hide_in_body(self, body: bytes) -> bytes:
        """Return a server's body without the key, JSON escapes included."""
        if not self.value:
            return body
        try:
            text, key = json.dumps(json.loads(body)), json.dumps(self.value)[1:-1]
        except (ValueError, RecursionError):
            text, key = body.decode("utf-8", "surrogateescape"), self.value
        return text.replace(key, HIDDEN).encode("utf-8", "surrogateescape")

    @property
    def place(self) -> str:
        """Return where the key is stored, in words."""
        if self.name.startswith(BLOCK):
            return f"the Prefect Secret block {self.name.removeprefix(BLOCK)!r}"
        return f"the environment variable {self.name}"


def load_key(name: str, *, field: str = "models.*") -> Key:
    """Return the key named by ``ChatConfig.key``; ``field`` is the model's, for messages."""
    try:
        value = _load_block(name.removeprefix(BLOCK)) if name.startswith(BLOCK) else os.environ.get(name, "")
        key = Key(name, value.strip())
        if any(not "!" <= character <= "~" for character in key.value):
            raise ConfigError(f"{key.place} has spaces or non-ASCII characters: set it again")
    except ConfigError as error:
        raise ConfigError(f"{field}.key: {error}") from error.__cause__
    return key


@lru_cache
def _load_block(name: str) -> str:
    from prefect.blocks.system import Secret
    from prefect.settings import PREFECT_API_URL

    if not PREFECT_API_URL.value():  # Prefect would start a temporary server without blocks
        raise ConfigError(f"{BLOCK}{name} needs a Prefect server: set PREFECT_API_URL to its address")
    try:
        held = run(Secret.aload(name)).value.get_secret_value()
    except ValueError as error:
        raise ConfigError(
            f"the Prefect server has no Secret block {name!r}: create it under Blocks in its UI"
        ) from error
    except Exception as error:
        kind = type(error).__name__
        raise ConfigError(f"{BLOCK}{name}: {PREFECT_API_URL.value()} does not answer ({kind})") from error
    if not isinstance(held, str) or not held:
        raise ConfigError(f"the Prefect Secret block {name!r} is empty: set it again")
    return held
