"""Find the weights of models on this machine, or fetch them.

Reads local files, the Hub's cache (``HF_HOME``), and for files published elsewhere
``$PAIRWRIGHT_CACHE/weights`` (default ``~/.cache/pairwright/weights``). Uses the network only where
the profile says ``download: true``. Missing, damaged or wrong files raise ``ModelError``, which
names what is missing and the command to fetch it.
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
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from pairwright.schemas.errors import ModelError, wrap_errors
from pairwright.tasks.store.manifest import digest

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".npz")
LOCAL = "xxh3:"
"""Prefix of the identity of local files; a Hub revision is a commit."""
CACHE = "PAIRWRIGHT_CACHE"
"""Environment variable of the folder of downloads."""
RETRIES = 4
NOT_TENSORS = re.compile(r"unsupported (global: )?(global|operand) \S+|TorchScript", re.IGNORECASE)
"""Cause in PyTorch's message of a file that holds more than tensors."""
CHUNK_BYTES = 1 << 22
ANY_TYPE: tuple[str, ...] = ()
"""Types of a model that may be of any (``Pretrained.types``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFiles:
    """Files of a Hub repository that a model needs."""

    field: str
    """Section of the profile, for messages."""
    repository: str
    revision: str
    """Commit, branch or tag; empty: the cache's ``main``."""
    weights: tuple[str, ...]
    """Alternatives, the best first."""
    extra: tuple[str, ...] = ()
    """Other required files."""
    optional: tuple[str, ...] = ()
    """Files that are fetched where the repository has them."""
    of_build: bool = True
    """Whether a build needs them, which can fetch them; a training cannot."""

    @property
    def command(self) -> str:
        """Return the command that fetches them; of alternatives, the best."""
        files = " ".join((*self.extra, self.weights[0]))
        revision = f" --revision {self.revision}" if self.revision else ""
        return f"hf download {self.repository} {files}{revision}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFile:
    """File of a model that is not on the Hub."""

    field: str
    """Section of the profile, for messages."""
    name: str
    """Name in the cache."""
    url: str
    sha256: str = ""
    """Empty: none is published."""


class FoundFile(NamedTuple):
    """File of weights that was looked for and found."""

    field: str
    """Section of the profile."""
    origin: str
    """Repository of the Hub, or host."""
    path: Path
    how: str = ""
    """How a published file was verified; empty: a file of the Hub, not verified yet."""


lookups: ContextVar[list[FoundFile] | None] = ContextVar("lookups", default=None)
"""Takes all files that are found; set by `pairwright fetch`."""


def _record(files: Iterable[FoundFile]) -> None:
    """Add files to the lookups, if these are recorded."""
    recorded = lookups.get()
    if recorded is not None:
        recorded.extend(files)


def require_modules(field: str, *names: str) -> None:
    """Raise ``ModelError`` if a Python package is missing."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise ModelError(
            f"{field}: needs {', '.join(missing)}, not installed here: "
            "python -m pip install -e '.[cpu,models]'"
        )


def find_on_hub(files: HubFiles, *, download: bool) -> Path:
    """Return the path of the weights in the local cache, the extra files next to them.

    What is missing is fetched first, if allowed.
    """
    cached = _find_cached(files, files.weights)
    extra = _find_cached(files, files.extra)
    if cached and len(extra) == len(files.extra):
        weights = cached[0]
    elif download:
        weights = _fetch_from_hub(files)
    else:
        raise ModelError(_describe_missing(files))
    optional = _find_cached(files, files.optional)
    paths = (*(weights.parent / name for name in files.extra), *optional, weights)
    _record(FoundFile(files.field, files.repository, path) for path in paths)
    return weights


def _find_cached(files: HubFiles, names: Sequence[str]) -> list[Path]:
    """Return the paths of those files that are in the Hub's cache."""
    from huggingface_hub import try_to_load_from_cache

    paths: list[Path] = []
    for name in names:
        path = try_to_load_from_cache(files.repository, name, revision=files.revision or None)
        if isinstance(path, str):
            paths.append(Path(path))
    return paths


def _describe_missing(files: HubFiles) -> str:
    """Return the message of files that are not in the Hub's cache."""
    from huggingface_hub import constants

    names = " and ".join((*files.extra, " or ".join(files.weights)))
    revision = f" at revision {files.revision}" if files.revision else ""
    alternative = f"\nor {_describe_fetch(files.field)}" if files.of_build else ""
    return (
        f"{files.field}: {files.repository} is not on this machine: "
        f"looked in {constants.HF_HUB_CACHE} for {names}{revision}. "
        f"Fetch it with: {files.command}{alternative}"
    )


def _describe_fetch(field: str) -> str:
    section, _, _ = field.partition(".")
    return (
        "all that a build needs with `pairwright fetch` and the same --profile and --set, "
        f"or let the build fetch it: --set {section}.download=true"
    )


def _fetch_from_hub(files: HubFiles) -> Path:
    """Fetch missing files into the Hub's local cache; return the path of the weights."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import RemoteEntryNotFoundError

    def refuse(error: Exception) -> ModelError:
        problem = f"{files.field}: {files.repository} could not be fetched: {error}"
        return ModelError(f"{problem}\nTry: {files.command}")

    revision = files.revision or None
    with wrap_errors(refuse):  # the Hub's client raises its own, httpx's and the system's errors
        for name in files.extra:
            hf_hub_download(files.repository, name, revision=revision)
        for name in files.optional:
            with contextlib.suppress(RemoteEntryNotFoundError):
                hf_hub_download(files.repository, name, revision=revision)
        for name in files.weights:
            with contextlib.suppress(RemoteEntryNotFoundError):
                return Path(hf_hub_download(files.repository, name, revision=revision))
    raise ModelError(f"{files.field}: {files.repository} holds none of {', '.join(files.weights)}")


def weights_folder() -> Path:
    """Return the folder of published files."""
    return Path(os.environ.get(CACHE) or "~/.cache/pairwright").expanduser().absolute() / "weights"


def find_published(file: PublishedFile, *, download: bool) -> Path:
    """Return the path of a verified file; fetch a missing or wrong one if allowed."""
    path = weights_folder() / file.name
    fault = _find_fault(file, path)
    if fault and not download:
        raise ModelError(
            f"{file.field}: {fault}. Put {file.url} there, or fetch {_describe_fetch(file.field)}"
        )
    if fault:
        _fetch_published(file)
    how = "SHA-256, published" if file.sha256 else "not verified: no hash of it is published"
    host = file.url.split("/")[2]
    _record([FoundFile(file.field, host, path, how)])
    return path


def _find_fault(file: PublishedFile, path: Path) -> str:
    """Return why a local file is not the published one; empty: it is."""
    if not path.is_file():
        return f"{file.name} is not on this machine: looked for {path}"
    if not file.sha256:
        return ""
    sha256 = digest(path, hashlib.sha256)
    if sha256 == file.sha256:
        return ""
    return f"{path} has SHA-256 {sha256}, not the published {file.sha256}"


def _fetch_published(file: PublishedFile) -> None:
    """Fetch a file, renamed into place once its hash is verified."""
    require_modules(file.field, "pooch")
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
    checkpoint: str,
    published: PublishedFile,
    revision: str,
    *,
    download: bool,
) -> Path:
    """Return the path of a local checkpoint, or of the published file where none is named."""
    field = published.field
    if checkpoint:
        path = Path(checkpoint).expanduser()
    else:
        path = find_published(published, download=download)
    if not path.is_file():
        raise ModelError(f"{field}.checkpoint: {path}: no such file")
    check_revision(field, revision, identify_files([path]), path)
    return path


def find_local(field: str, path: Path, endings: Sequence[str] = WEIGHTS) -> list[Path]:
    """Return the files of a local model: the file itself, or all files of a folder.

    The folder must hold weights, which have one of the endings.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ModelError(f"{field}: {path}: no such file or folder")
    visible = [file for file in path.iterdir() if not file.name.startswith(".")]
    files = sorted(file for file in visible if file.is_file())
    if not any(file.suffix in endings for file in files):
        names = ", ".join(sorted(endings))
        raise ModelError(f"{field}: {path} holds no weights (a file ending in {names})")
    return files


def identify_files(files: Sequence[Path]) -> str:
    """Return the identity of files: a hash of their names and bytes."""
    hashes = [f"{file.name} {digest(file, xxhash.xxh3_128)}" for file in files]
    return LOCAL + xxhash.xxh3_128_hexdigest("\n".join(hashes).encode())


def check_revision(field: str, expected: str, actual: str, path: Path) -> None:
    """Refuse weights other than those of the profile, or of the dataset's record."""
    if expected and expected != actual:
        raise ModelError(
            f"{field}.revision: {path} is {actual}, not {expected}: it has changed. "
            "Restore the old file, or set the revision to the new one "
            "(its vectors get a table of their own)"
        )


def is_model_folder(model: str) -> bool:
    """Return whether a model is a folder; a name on the Hub is ``owner/name``."""
    return model.startswith((".", "/", "~")) or Path(model).is_dir()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pretrained:
    """Models of transformers' ``save_pretrained``: folders, or names on the Hub."""

    field: str
    """Section of the profile, for messages."""
    kind: str
    """Display name ("DINOv2")."""
    types: tuple[str, ...]
    """Accepted ``model_type`` values of ``config.json``."""
    known: Mapping[str, str]
    """Default commits, by name on the Hub."""
    weights: tuple[str, ...]
    """Alternatives on the Hub, the best first."""
    extra: tuple[str, ...]
    """Other required files on the Hub."""
    optional: tuple[str, ...] = ()
    """Files that are fetched where the repository has them."""

    def identify(self, model: str, revision: str) -> str:
        """Return a model's name with its revision, without looking for it."""
        name = self.kind if is_model_folder(model) and revision else model
        return f"{name} {revision or self.known.get(model, 'main')}"

    def pin(self, model: str, revision: str, *, download: bool) -> dict[str, str]:
        """Return the local ``revision``, and for a folder its absolute path as ``model``."""
        folder = self.checked_folder(model, revision, download=download)
        if not is_model_folder(model):
            return {"revision": folder.name}
        files = find_local(f"{self.field}.model", folder)
        return {"revision": identify_files(files), "model": absolute(model)}

    def resolve_folder(self, model: str, revision: str, *, download: bool = False) -> Path:
        """Return a model's folder, without checking local files."""
        if is_model_folder(model):
            return Path(model).expanduser()
        files = HubFiles(
            field=self.field,
            repository=model,
            revision=revision or self.known.get(model, ""),
            weights=self.weights,
            extra=self.extra,
            optional=self.optional,
        )
        return find_on_hub(files, download=download).parent

    def checked_folder(self, model: str, revision: str, *, download: bool = False) -> Path:
        """Return a model's folder; local files must be complete, of the type and the revision."""
        folder = self.resolve_folder(model, revision, download=download)
        if is_model_folder(model):
            self._check_files(folder, revision)
        return folder

    def _check_files(self, folder: Path, revision: str) -> None:
        from safetensors import safe_open

        endings = {Path(name).suffix for name in self.weights}
        files = find_local(f"{self.field}.model", folder, tuple(endings))
        check_revision(self.field, revision, identify_files(files), folder)
        self.find_type(folder)
        for file in files:
            if file.suffix == ".safetensors":
                with loading(self.field, file), safe_open(file, framework="np"):
                    pass  # checks the length of the file

    def find_type(self, folder: Path) -> str:
        """Return a model's type in ``config.json``; refuse unsupported ones."""
        path = folder / "config.json"
        with loading(self.field, folder):
            kind = json.loads(path.read_text(encoding="utf-8")).get("model_type")
        if not isinstance(kind, str) or (self.types and kind not in self.types):
            expected = " or a ".join(self.types) or "type of transformers"
            raise ModelError(f"{self.field}.model: {path} describes a {kind}, not a {expected}")
        return kind


@contextlib.contextmanager
def loading(field: str, path: Path) -> Generator[None]:
    """Turn all errors of loading a file into ``ModelError``; offline and quiet meanwhile."""
    from huggingface_hub import constants

    transformers = sys.modules.get("transformers")
    if transformers:
        transformers.logging.disable_progress_bar()
    was_offline = constants.HF_HUB_OFFLINE
    was_disabled = logging.root.manager.disable
    constants.HF_HUB_OFFLINE = True
    logging.disable(logging.INFO)

    def refuse(error: Exception) -> ModelError:
        return ModelError(f"{field}: {path} cannot be loaded: {summarise(error)}")

    try:
        with wrap_errors(refuse, keep=ModelError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        constants.HF_HUB_OFFLINE = was_offline
        logging.disable(was_disabled)


def summarise(error: Exception) -> str:
    """Return the message of an error, without PyTorch's advice to load unsafely."""
    text = str(error).strip()
    if "weights_only" not in text:
        return text if type(error) is ValueError else f"{type(error).__name__}: {text}"
    cause = NOT_TENSORS.search(text)
    return f"not only tensors ({cause[0]})" if cause else "not only tensors, or damaged"
