"""JSON files of a dataset, each with a digest of its own bytes, so that a changed file is found.

The digest is the last field, computed with zeros in its place.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pairwright.schemas.errors import StoreError
from pairwright.tasks.store.files import Folder

FIELD, SIZE = "digest", 16
BLANK = "0" * (2 * SIZE)


def seal(content: Mapping[str, Any]) -> bytes:
    """Return the bytes of a JSON file with a content and its digest."""
    text = json.dumps({**content, FIELD: BLANK}, indent=1)
    return text.replace(f'"{BLANK}"', f'"{_digest(text)}"').encode()


def read_sealed(folder: Folder, name: str, *, mend: str) -> dict[str, Any]:
    """Return the content of a JSON file; ``StoreError``, with the remedy, if it is missing or a byte has changed."""
    try:
        text = folder.read(name).decode()
        content = dict(json.loads(text))
        stated = str(content.pop(FIELD, ""))
        if not stated or _digest(text.replace(f'"{stated}"', f'"{BLANK}"')) != stated:
            raise ValueError("its bytes do not match its digest" if stated else "it has no digest")
    except StoreError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        raise StoreError(f"{folder.path(name)}: is missing. {mend}") from error
    except (ValueError, TypeError, RecursionError) as error:  # JSON's and Unicode's are ValueErrors
        raise StoreError(f"{folder.path(name)}: is damaged: {error}. {mend}") from error
    return content


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=SIZE).hexdigest()
