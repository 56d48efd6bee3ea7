"""Find the weights of models on this machine, or fetch them; errors name what is missing and the command to fetch it.

Reads local files, the Hub's cache (``HF_HOME``), and for files published elsewhere
``$PAIRWRIGHT_CACHE/weights`` (default ``~/.cache/pairwright/weights``). Uses the network only where
the profile says ``download: true``. Missing, damaged or wrong files raise ``ModelError``.
"""

import contextlib
import hashlib
import importlib.util
import json
import logging
import os
import re
import sys
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from pairwright.schemas.errors import ModelError
from pairwright.tasks.store.manifest import digest

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".npz")
LOCAL = "xxh3:"  # prefix of the identity of local files; a Hub revision is a commit
CACHE = "PAIRWRIGHT_CACHE"  # environment variable of the folder of downloads
RETRIES = 4
CHUNK_BYTES = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFiles:
    """Files of a Hub repository that a model needs."""

    field: str  # section of the profile, for messages
    repository: str
    revision: str  # a commit, branch or tag; empty: the cache's ``main``
    weights: tuple[str, ...]  # alternatives, the best first
    beside: tuple[str, ...] = ()  # other required files
    of_build: bool = True  # whether a build needs them, which can fetch them; a training cannot

    @property
    def command(self) -> str:
        """Return the command that fetches them; of alternatives, the best."""
        revision = f" --revision {self.revision}" if self.revision else ""
        return (
            f"hf download {self.repository} {' '.join((*self.beside, self.weights[0]))}{revision}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFile:
    """File of a model that is not on the Hub."""

    field: str  # section of the profile, for messages
    name: str  # name in the cache
    url: str
    sha256: str = ""  # empty: none is published


class FoundFile(NamedTuple):
    """File of weights that was looked for and found."""

    field: str  # section of the profile
    origin: str  # repository of the Hub, or host
    path: Path
    how: str = ""  # how a published file was verified; empty: a file of the Hub, not verified yet


lookups: ContextVar[list[FoundFile] | None] = ContextVar("lookups", default=None)
"""Takes all files that are found; set by `pairwright fetch`."""


def _note(*found: FoundFile) -> None:
    if (noted := lookups.get()) is not None:
        noted.extend(found)


def require_packages(field: str, *names: str) -> None:
    """Refuse to go on where Python packages are missing."""
    if missing := [name for name in names if importlib.util.find_spec(name) is None]:
        raise ModelError(
            f"{field}: needs {', '.join(missing)}, not installed here: python -m pip install -e '.[cpu,models]'"
        )


def find_on_hub(files: HubFiles, *, download: bool) -> Path:
    """Return the path of the weights in the local cache, other files beside them; fetch them first if allowed."""
    from huggingface_hub import constants, try_to_load_from_cache

    def cached(names: Sequence[str]) -> list[Path]:
        found = (
            try_to_load_from_cache(files.repository, name, revision=files.revision or None)
            for name in names
        )
        return [Path(path) for path in found if isinstance(path, str)]

    weights = cached(files.weights)
    if len(cached(files.beside)) < len(files.beside) or not weights:
        weights = [_fetch_from_hub(files)] if download else []
    if weights:
        paths = (*(weights[0].parent / name for name in files.beside), weights[0])
        _note(*(FoundFile(files.field, files.repository, path) for path in paths))
        return weights[0]
    names = " and ".join((*files.beside, " or ".join(files.weights)))
    others = f"\nor {_say_fetch(files.field)}" if files.of_build else ""
    raise ModelError(
        f"{files.field}: {files.repository} is not on this machine: looked in {constants.HF_HUB_CACHE} for {names}"
        f"{f' at revision {files.revision}' if files.revision else ''}. Fetch it with: {files.command}{others}"
    )


def _say_fetch(field: str) -> str:
    setting = f"--set {field.partition('.')[0]}.download=true"
    return (
        "all that a build needs with `pairwright fetch` and the same --profile and --set, or let the build fetch it: "
        f"{setting}"
    )


def _fetch_from_hub(files: HubFiles) -> Path:
    """Fetch missing files into the Hub's local cache; return the path of the weights."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import RemoteEntryNotFoundError

    revision = files.revision or None
    try:
        for name in files.beside:
            hf_hub_download(files.repository, name, revision=revision)
        for name in files.weights:
            with contextlib.suppress(RemoteEntryNotFoundError):
                return Path(hf_hub_download(files.repository, name, revision=revision))
    except Exception as error:  # the Hub's client raises its own, httpx's and the system's errors
        raise ModelError(
            f"{files.field}: {files.repository} could not be fetched: {error}\nTry: {files.command}"
        ) from error
    raise ModelError(f"{files.field}: {files.repository} holds none of {', '.join(files.weights)}")


def weights_folder() -> Path:
    """Return the folder of published files."""
    return Path(os.environ.get(CACHE) or "~/.cache/pairwright").expanduser().absolute() / "weights"


def find_published(file: PublishedFile, *, download: bool) -> Path:
    """Return the path of a verified file; fetch a missing or wrong one if allowed."""
    path, fault = weights_folder() / file.name, ""
    if not path.is_file():
        fault = f"{file.name} is not on this machine: looked for {path}"
    elif file.sha256 and (found := digest(path, hashlib.sha256)) != file.sha256:
        fault = f"{path} has SHA-256 {found}, not the published {file.sha256}"
    if fault and not download:
        raise ModelError(
            f"{file.field}: {fault}. Put {file.url} there, or fetch {_say_fetch(file.field)}"
        )
    if fault:
        _fetch_published(file)
    how = "SHA-256, published" if file.sha256 else "not verified: no hash of it is published"
    _note(FoundFile(file.field, file.url.split("/")[2], path, how))
    return path


def _fetch_published(file: PublishedFile) -> None:
    """Fetch a file, renamed into place once its hash is verified."""
    require_packages(file.field, "pooch")
    import pooch

    pooch.get_logger().setLevel(logging.WARNING)
    known = {file.name: f"sha256:{file.sha256}" if file.sha256 else None}
    source = pooch.create(
        weights_folder(),
        base_url="",
        registry=known,
        urls={file.name: file.url},
        retry_if_failed=RETRIES,
    )
    bar: Any = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), chunk_size=CHUNK_BYTES)
    try:
        source.fetch(file.name, downloader=bar)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{file.field}: {file.name} could not be fetched from {file.url}: {error}"
        ) from error


def absolute(path: str) -> str:
    """Return a local path as absolute, so that a build can resume from any folder; "" stays."""
    return str(Path(path).expanduser().absolute()) if path else ""


def find_checkpoint(
    checkpoint: str, published: PublishedFile, revision: str, *, download: bool
) -> Path:
    """Return the path of a local checkpoint, or of the published file where none is named."""
    field = published.field
    path = (
        Path(checkpoint).expanduser()
        if checkpoint
        else find_published(published, download=download)
    )
    if not path.is_file():
        raise ModelError(f"{field}.checkpoint: {path}: no such file")
    check_revision(field, revision, identify_files([path]), path)
    return path


def find_local(field: str, path: Path, endings: Sequence[str] = WEIGHTS) -> list[Path]:
    """Return the files of a local model: the file itself, or all files of a folder with weights of such endings."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ModelError(f"{field}: {path}: no such file or folder")
    files = sorted(
        file for file in path.iterdir() if file.is_file() and not file.name.startswith(".")
    )
    if not any(file.suffix in endings for file in files):
        raise ModelError(
            f"{field}: {path} holds no weights (a file ending in {', '.join(sorted(endings))})"
        )
    return files


def identify_files(files: Sequence[Path]) -> str:
    """Return the identity of files: a hash of their names and bytes."""
    hashes = [f"{file.name} {digest(file, xxhash.xxh3_128)}" for file in files]
    return LOCAL + xxhash.xxh3_128_hexdigest("\n".join(hashes).encode())


def check_revision(field: str, wanted: str, found: str, path: Path) -> None:
    """Refuse weights other than those of the profile, or of the dataset's record."""
    if wanted and wanted != found:
        raise ModelError(
            f"{field}.revision: {path} is {found}, not {wanted}: it has changed. Restore the old file, or set the "
            "revision to the new one (its vectors get a table of their own)"
        )


def is_local(model: str) -> bool:
    """Return whether a model is a folder; a name on the Hub is ``owner/name``."""
    return model.startswith((".", "/", "~")) or Path(model).is_dir()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pretrained:
    """Models of transformers' ``save_pretrained`` (folders, names on the Hub), and their required files."""

    field: str  # section of the profile, for messages
    kind: str  # display name ("DINOv2")
    types: tuple[str, ...]  # accepted ``model_type`` values of ``config.json``
    known: Mapping[str, str]  # default commits, by name on the Hub
    weights: tuple[str, ...]  # alternatives on the Hub, the best first
    beside: tuple[str, ...]  # other required files on the Hub

    def identify(self, model: str, revision: str) -> str:
        """Return a model's name with its revision, without looking for it."""
        name = self.kind if is_local(model) and revision else model
        return f"{name} {revision or self.known.get(model, 'main')}"

    def pin(self, model: str, revision: str, *, download: bool) -> dict[str, str]:
        """Return the local ``revision``, and for a folder its absolute path as ``model``."""
        folder = self.checked_folder(model, revision, download=download)
        if not is_local(model):
            return {"revision": folder.name}
        return {
            "revision": identify_files(find_local(f"{self.field}.model", folder)),
            "model": absolute(model),
        }

    def folder(self, model: str, revision: str, *, download: bool = False) -> Path:
        """Return a model's folder, without checking local files."""
        if is_local(model):
            return Path(model).expanduser()
        revision = revision or self.known.get(model, "")
        files = HubFiles(
            field=self.field,
            repository=model,
            revision=revision,
            weights=self.weights,
            beside=self.beside,
        )
        return find_on_hub(files, download=download).parent

    def checked_folder(self, model: str, revision: str, *, download: bool = False) -> Path:
        """Return a model's folder; local files must be of the type, complete and of the revision."""
        from safetensors import safe_open

        folder = self.folder(model, revision, download=download)
        if is_local(model):
            files = find_local(
                f"{self.field}.model", folder, tuple({Path(name).suffix for name in self.weights})
            )
            check_revision(self.field, revision, identify_files(files), folder)
            self.find_type(folder)
            for file in files:
                if file.suffix == ".safetensors":
                    with loading(self.field, file), safe_open(file, framework="np"):
                        pass  # checks the length of the file
        return folder

    def find_type(self, folder: Path) -> str:
        """Return a model's type in ``config.json``; refuse unsupported ones."""
        path = folder / "config.json"
        with loading(self.field, folder):
            found = json.loads(path.read_text(encoding="utf-8")).get("model_type")
        if found not in self.types:
            raise ModelError(
                f"{self.field}.model: {path} describes a {found}, not a {' or a '.join(self.types)}"
            )
        return found


@contextlib.contextmanager
def loading(field: str, path: Path) -> Generator[None]:
    """Turn all errors of loading a file into ``ModelError``; offline and quiet meanwhile."""
    from huggingface_hub import constants

    if transformers := sys.modules.get("transformers"):
        transformers.logging.disable_progress_bar()
    was_offline, was_disabled = constants.HF_HUB_OFFLINE, logging.root.manager.disable
    constants.HF_HUB_OFFLINE = True
    logging.disable(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{field}: {path} cannot be loaded: {summarise(error)}") from error
    finally:
        constants.HF_HUB_OFFLINE = was_offline
        logging.disable(was_disabled)


def summarise(error: Exception) -> str:
    """Return a message; PyTorch's of a file that is no mere tensors goes on to recommend unsafe loading."""
    text = str(error).strip()
    if "weights_only" not in text:
        return text if type(error) is ValueError else f"{type(error).__name__}: {text}"
    wanted = re.search(
        r"unsupported (global: )?(global|operand) \S+|TorchScript", text, re.IGNORECASE
    )
    return f"not only tensors ({wanted[0]})" if wanted else "not only tensors, or damaged"
