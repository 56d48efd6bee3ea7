"""Fetch files of Hugging Face's Hub into its own cache, each taken up where it broke off, and verified.

The cache keeps a file's bytes under the name of their hash: the SHA-256 of a large file, git's SHA-1 of a small one.
The Hub's client starts interrupted files over and looks at their size only; here ``fetch_file`` fetches them, and
the hash is compared. The client then does the rest: it finds them there, and links them into the commit's folder. Where
the Hub stands at an address that ``fetch_file`` refuses (``HF_ENDPOINT`` with plain http), the client fetches, too.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from pairwright.tasks.models.fetching.fetch_file import FetchError, fetch_file, forget, may_ask
from pairwright.tasks.models.fetching.file_records import CHUNK_BYTES

SHA256, GIT = "SHA-256", "git SHA-1"
_HASHES = {64: SHA256, 40: GIT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """Be what the Hub says of a file."""

    url: str
    hash: str
    """The blob's name in the cache."""
    size: int


def fetch_hub_file(repository: str, name: str, revision: str) -> Path:
    """Return the path of a file in the Hub's local cache; fetch it first if it is not there.

    Raises:
        FetchError: it could not be fetched, or is not what the Hub says that it is.
        Exception: what the Hub's client raises, where the file or the Hub is not there.
    """
    from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache

    found = try_to_load_from_cache(repository, name, revision=revision or None)
    if isinstance(found, str):
        return Path(found)
    remote = ask_hub(repository, name, revision)
    cache, folder = Path(constants.HF_HUB_CACHE), f"models--{repository.replace('/', '--')}"
    if remote.size and hash_kind(remote.hash) and may_ask(remote.url):
        with _locked(cache / ".locks" / folder / f"{remote.hash}.lock"):
            _fetch_blob(remote, cache / folder / "blobs" / remote.hash, name)
    return Path(hf_hub_download(repository, name, revision=revision or None))


def ask_hub(repository: str, name: str, revision: str, *, again: bool = True) -> Remote:
    """Return what the Hub says of a file; a size of 0 is not known.

    Args:
        repository: its name on the Hub.
        name: the file's.
        revision: a commit, a branch or a tag; empty: the newest.
        again: whether a Hub that does not answer is asked again, for half a minute.

    Raises:
        Exception: what the Hub's client raises.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    url = hf_hub_url(repository, name, revision=revision or None)
    said = get_hf_file_metadata(url, retry_on_errors=again)
    return Remote(url=url, hash=said.etag or "", size=said.size or 0)


def hash_kind(name: str) -> str:
    """Return which hash a blob's name is; empty: none that can be compared."""
    return _HASHES.get(len(name), "") if re.fullmatch("[0-9a-f]+", name) else ""


def hash_blob(path: Path, kind: str) -> str:
    """Return a file's hash of this kind.

    Raises:
        OSError: it cannot be read.
    """
    made = hashlib.sha256() if kind == SHA256 else hashlib.sha1(b"blob %d\0" % path.stat().st_size)  # noqa: S324
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            made.update(chunk)
    return made.hexdigest()


def verify_blob(path: Path) -> tuple[str, str]:
    """Return by which hash a file of the cache could be verified (empty: by none), and what is wrong with it.

    Raises:
        OSError: it cannot be read.
    """
    blob = path.resolve()
    kind = hash_kind(blob.name)
    if not kind:
        return "", ""
    found = hash_blob(blob, kind)
    return kind, "" if found == blob.name else f"its {kind} is {found}, not {blob.name}"


def _locked(lock: Path) -> FileLock:
    """Return the lock by which the Hub's client, too, fetches a blob only once."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(lock)


def _fetch_blob(remote: Remote, blob: Path, name: str) -> None:
    from huggingface_hub.utils import get_token

    if blob.exists():
        return
    blob.parent.mkdir(parents=True, exist_ok=True)
    part = blob.with_name(f"{blob.name}.incomplete")
    fetch_file(remote.url, part, token=get_token() or "", shown=name)
    kind = hash_kind(remote.hash)
    found = hash_blob(part, kind)
    if found != remote.hash:
        forget(part)
        raise FetchError(f"{name}: what came has the {kind} {found}, not {remote.hash}; it was removed")
    part.replace(blob)
    forget(part)
