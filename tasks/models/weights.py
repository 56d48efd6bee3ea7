"""Find the weights of models on this machine; say what is missing, where it was looked for, and what fetches it.

Reads local files and the cache of Hugging Face's Hub (``HF_HOME``). Goes to the network only where the profile says
``download: true``. Loads nothing, so that it costs milliseconds and no PyTorch.
"""

import importlib.util
import logging
import sys
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import xxhash

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.fetching.fetch_hub import fetch_hub_file
from pairwright.tasks.models.fetching.file_records import CHUNK_BYTES, read_record
from pairwright.tasks.models.fetching.rehearse import note

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".npz")
LOCAL = "xxh3:"
"""How the identity of local files begins; a Hub revision is a commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFiles:
    """Say which files of a Hub repository a model needs."""

    field: str
    """The section of the profile that asks for them, for messages."""
    repository: str
    revision: str
    """A commit, a branch or a tag; empty: what the cache knows as ``main``."""
    weights: tuple[str, ...]
    """Alternatives, the best first."""
    beside: tuple[str, ...] = ()
    """Other files, all of them needed."""
    of_build: bool = True
    """Whether a build asks for them, which may be told to fetch them itself; a training may not."""

    @property
    def command(self) -> str:
        """Return what a user types to have them."""
        revision = f" --revision {self.revision}" if self.revision else ""
        return f"hf download {self.repository} {' '.join((*self.beside, self.weights[0]))}{revision}"


def require_packages(field: str, *names: str) -> None:
    """Refuse to go on where Python packages are missing.

    Raises:
        ModelError: names them, and what installs them.
    """
    if missing := [name for name in names if importlib.util.find_spec(name) is None]:
        raise ModelError(
            f"{field}: needs {', '.join(missing)}, not installed here: python -m pip install -e '.[cpu,models]'"
        )


def find_on_hub(files: HubFiles, *, download: bool) -> Path:
    """Return the path of the weights in the local cache, the other files beside them; fetch them first if allowed.

    Raises:
        ModelError: they are not there, or could not be fetched.
    """
    stand_in = note(files, files.weights[0], *files.beside)
    found = find_cached(files) or stand_in
    if found is None and download:
        found = _fetch(files)
    if found is None:
        from huggingface_hub import constants

        where = Path(constants.HF_HUB_CACHE) / f"models--{files.repository.replace('/', '--')}"
        names = " and ".join((*files.beside, " or ".join(files.weights)))
        raise ModelError(
            f"{files.field}: {files.repository} is not on this machine: looked in {where} for {names}"
            f"{f' at revision {files.revision}' if files.revision else ''}. Fetch it with: {files.command}"
            f"{_other_ways(files.field) if files.of_build else ''}"
        )
    return found


def _other_ways(field: str) -> str:
    return (
        "\nor all that a build needs with `pairwright fetch` and the same --profile and --set, or let `pairwright "
        f"build` fetch it: {download_setting(field)}"
    )


def download_setting(field: str) -> str:
    """Return what lets a build fetch the weights of a section, or of one inside it; a served model has its own."""
    section = field if field.endswith(".launch") else field.partition(".")[0]
    return f"--set {section}.download=true"


def find_cached(files: HubFiles) -> Path | None:
    """Return the path of the weights in the Hub's local cache; nothing unless all that is needed is there."""
    from huggingface_hub import try_to_load_from_cache

    def look(name: str) -> Path | None:
        found = try_to_load_from_cache(files.repository, name, revision=files.revision or None)
        return Path(found) if isinstance(found, str) else None

    beside = [look(name) for name in files.beside]
    weights = next((path for name in files.weights if (path := look(name))), None)
    return weights if None not in beside else None


def _fetch(files: HubFiles) -> Path:
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    def fetch(name: str) -> Path:
        return fetch_hub_file(files.repository, name, files.revision)

    try:
        for name in files.beside:
            fetch(name)
        for name in files.weights:
            try:
                return fetch(name)
            except LocalEntryNotFoundError:
                raise  # the Hub was not reached
            except EntryNotFoundError:
                continue
    except Exception as error:  # the Hub's client raises its own, httpx's and the system's errors
        raise ModelError(
            f"{files.field}: {files.repository} could not be fetched: {error}\nTry: {files.command}"
        ) from error
    raise ModelError(f"{files.field}: {files.repository} holds none of {', '.join(files.weights)}")


def absolute(path: str) -> str:
    """Return a local path that means the same from anywhere, so that a build can be resumed from anywhere."""
    return str(Path(path).expanduser().absolute())


def find_local(field: str, path: Path, *, beside: Sequence[str] = ()) -> list[Path]:
    """Return the files of a local model: the file itself, or a folder's weights and the files that must lie beside.

    Raises:
        ModelError: something is missing.
    """
    if path.is_file() and not beside:
        return [path]
    if not path.is_dir():
        raise ModelError(f"{field}: {path}: no such {'folder' if beside else 'file or folder'}")
    if missing := [name for name in beside if not (path / name).is_file()]:
        raise ModelError(f"{field}: {path} holds no {' and no '.join(missing)}")
    weights = sorted(file for file in path.iterdir() if file.suffix in WEIGHTS)
    if not weights:
        raise ModelError(f"{field}: {path} holds no weights (a file ending in {', '.join(WEIGHTS)})")
    return [*(path / name for name in beside), *weights]


def identify_files(files: Sequence[Path]) -> str:
    """Return what tells these files from all others: a hash of their names and bytes."""
    hashes = [f"{file.name} {_hash_of(file)}" for file in files]
    return LOCAL + xxhash.xxh3_128_hexdigest("\n".join(hashes).encode())


def _hash_of(file: Path) -> str:
    known = read_record(file)
    return known.xxh3 if known and known.is_of(file) else _hash(file, file.stat().st_size, file.stat().st_mtime_ns)


@lru_cache(maxsize=64)
def _hash(file: Path, size: int, changed: int) -> str:  # noqa: ARG001 - size and time are the cache's key
    made = xxhash.xxh3_128()
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            made.update(chunk)
    return made.hexdigest()


def check_revision(field: str, wanted: str, found: str, path: Path) -> None:
    """Refuse weights that are not those that the profile, or the dataset's record, names.

    Raises:
        ModelError: they differ.
    """
    if wanted and wanted != found:
        raise ModelError(
            f"{field}.revision: {path} holds {found}, not {wanted}: the file has changed since the dataset was built. "
            "Put the old one back, or build with the new one (its vectors get a table of their own)"
        )


@contextmanager
def offline() -> Generator[None]:
    """Keep Hugging Face's libraries off the network while a local model is loaded."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@contextmanager
def loading(field: str, path: Path) -> Generator[None]:
    """Turn whatever a loader raises about a file into ``ModelError``; nothing is fetched or told meanwhile."""
    try:
        with offline(), _quiet():
            yield
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{field}: {path} cannot be loaded: {type(error).__name__}: {error}") from error


@contextmanager
def _quiet() -> Generator[None]:
    """Silence what libraries say while they load: progress bars, notes on the root logger, deprecations."""
    transformers = sys.modules.get("transformers")
    if transformers:
        transformers.logging.disable_progress_bar()
    before = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
