"""Find the files of RAM and RAM++ (recognize-anything): weights, the names of their tags, and a threshold for each.

Reads local files, or the published ones as ``pairwright fetch`` puts them. Loads no weights.
"""

from dataclasses import dataclass
from pathlib import Path

from pairwright.schemas.errors import ModelError
from pairwright.schemas.removing import RamConfig
from pairwright.tasks.models.weights import (
    PublishedFile,
    absolute,
    check_revision,
    find_local,
    find_published,
    identify_files,
    require_packages,
)

FIELD = "tagging.ram"
HUB = "https://huggingface.co/"
LISTS = (
    "https://raw.githubusercontent.com/xinyu1205/recognize-anything/7cb804a8609e9f4b1a50b7f31436d2df40bb9481/ram/data/"
)
RAM = PublishedFile(
    field=FIELD,
    name="ram_swin_large_14m.pth",
    url=f"{HUB}spaces/xinyu1205/Recognize_Anything-Tag2Text/resolve/main/ram_swin_large_14m.pth",
    sha256="15c729c793af28b9d107c69f85836a1356d76ea830d4714699fb62e55fcc08ed",
)
RAM_PLUS = PublishedFile(
    field=FIELD,
    name="ram_plus_swin_large_14m.pth",
    url=f"{HUB}xinyu1205/recognize-anything-plus-model/resolve/main/ram_plus_swin_large_14m.pth",
    sha256="497c178836ba66698ca226c7895317e6e800034be986452dbd2593298d50e87d",
)
TAGS = PublishedFile(field=FIELD, name="ram_tag_list.txt", url=f"{LISTS}ram_tag_list.txt")
"""4,585 names; both models have the same. No SHA-256 is published, but the address names a commit."""
THRESHOLDS = PublishedFile(field=FIELD, name="ram_tag_list_threshold.txt", url=f"{LISTS}ram_tag_list_threshold.txt")
THRESHOLD = 0.68
"""What the public code takes for tags without a threshold of their own."""
MAX_LIST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RamFiles:
    """Be the files of one model."""

    checkpoint: Path
    tags: Path
    thresholds: Path | None
    """None: every tag has the same."""

    @property
    def all(self) -> list[Path]:
        """Return every file."""
        return [self.checkpoint, self.tags, *([self.thresholds] if self.thresholds else [])]


@dataclass(frozen=True, slots=True)
class TagList:
    """Be the names of the tags, in the checkpoint's order, each with its least probability."""

    names: tuple[str, ...]
    thresholds: tuple[float, ...]


def find_ram(config: RamConfig, *, plus: bool, download: bool) -> RamFiles:
    """Return the files that a configuration means.

    Raises:
        ModelError: one is missing, or they are not those that ``revision`` names.
    """
    weights = RAM_PLUS if plus else RAM
    thresholds = None
    if config.thresholds or not config.tags:
        thresholds = _find("thresholds", config.thresholds, THRESHOLDS, download=download)
    files = RamFiles(
        checkpoint=_find("checkpoint", config.checkpoint, weights, download=download),
        tags=_find("tags", config.tags, TAGS, download=download),
        thresholds=thresholds,
    )
    if config.revision:
        check_revision(FIELD, config.revision, identify_files(files.all), files.checkpoint)
    return files


def _find(name: str, local: str, published: PublishedFile, *, download: bool) -> Path:
    if not local:
        return find_published(published, download=download)
    path = Path(local).expanduser()
    if not path.is_file():
        raise ModelError(f"{FIELD}.{name}: {path}: no such file")
    return find_local(f"{FIELD}.{name}", path)[0]


def pin_ram(config: RamConfig, *, plus: bool, download: bool) -> RamConfig:
    """Return the configuration with the hash of the files that are on this machine.

    Raises:
        ModelError: files or packages are missing, or the files are not those that the configuration names.
    """
    require_packages(FIELD, "torch", "timm")
    revision = identify_files(find_ram(config, plus=plus, download=download).all)
    named = {name: path for name in ("checkpoint", "tags", "thresholds") if (path := getattr(config, name))}
    return config.model_copy(update={"revision": revision} | {name: absolute(path) for name, path in named.items()})


def read_tags(files: RamFiles) -> TagList:
    """Return the names of the tags with their thresholds.

    Raises:
        ModelError: a list is broken, or the two are of different lengths.
    """
    names = _lines(files.tags, "tags")
    if empty := [number for number, name in enumerate(names, start=1) if not name]:
        raise ModelError(f"{FIELD}.tags: {files.tags}: line {empty[0]} is empty")
    if files.thresholds is None:
        return TagList(names, (THRESHOLD,) * len(names))
    thresholds = tuple(_share(line, number, files.thresholds) for number, line in _numbered(files.thresholds))
    if len(thresholds) != len(names):
        raise ModelError(
            f"{FIELD}.thresholds: {files.thresholds} has {len(thresholds):,} lines, and {files.tags} names "
            f"{len(names):,} tags"
        )
    return TagList(names, thresholds)


def _numbered(path: Path) -> list[tuple[int, str]]:
    return list(enumerate(_lines(path, "thresholds"), start=1))


def _share(line: str, number: int, path: Path) -> float:
    try:
        value = float(line)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:  # NaN is neither
        raise ModelError(f"{FIELD}.thresholds: {path}: line {number} is no number from 0 to 1: {line[:40]!r}")
    return value


def _lines(path: Path, name: str) -> tuple[str, ...]:
    try:
        if path.stat().st_size > MAX_LIST_BYTES:
            raise ModelError(f"{FIELD}.{name}: {path} is larger than a megabyte")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{FIELD}.{name}: {path} cannot be read: {error}") from error
    if not lines:
        raise ModelError(f"{FIELD}.{name}: {path} is empty")
    return tuple(line.strip() for line in lines)
