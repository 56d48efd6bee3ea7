"""Load the key of a served model, from the environment or a Prefect block. It goes to the server and nowhere else."""

import os

from schemas.errors import ConfigError

BLOCK = "block:"


def load_key(name: str) -> str:
    """Return the key that ``ChatConfig.key`` names; empty: there is none, and none is sent.

    Raises:
        ConfigError: the block cannot be loaded, or what was found is no key.
    """
    found = _load_block(name.removeprefix(BLOCK)) if name.startswith(BLOCK) else os.environ.get(name, "")
    key = found.strip()
    if any(not "!" <= character <= "~" for character in key):
        raise ConfigError(f"chat.key: {name} holds characters that no key has (spaces, or beyond ASCII): set it again")
    return key


def _load_block(name: str) -> str:
    raise ConfigError(f"chat.key: block {name}")
