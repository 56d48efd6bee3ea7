"""Have files of weights on this machine, each verified by its hash: what `pairwright fetch` does with every one.

Reads and writes the Hub's local cache and that of ``published``. What is there, but is not what its hash
says, is removed and fetched again. Needs huggingface_hub for files of the Hub.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.fetching.fetch_hub import verify_blob
from pairwright.tasks.models.fetching.published import PublishedFile, find_fault, find_published, weights_folder
from pairwright.tasks.models.weights import HubFiles, find_cached, find_on_hub

Wanted = HubFiles | PublishedFile
UNVERIFIED = "not verified: no hash of it is kept here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Say how a file of weights was found."""

    field: str
    """The section of the profile that asks for it."""
    model: str
    """The repository with its commit, or the address's host."""
    file: str
    size: int = 0
    how: str = ""
    """By which hash it was verified, in words."""
    folder: str = ""
    """The cache that it is in; empty: it is in none."""
    fault: str = ""
    """Why it cannot be used; empty: it can."""


def have_verified(wanted: Wanted, *, fetch: bool) -> list[Verified]:
    """Return how each file was found, fetched first where it is not there and may be.

    A file that cannot be had is in the list with its fault, too; none is raised.
    """
    try:
        if isinstance(wanted, PublishedFile):
            return [_published(wanted, fetch=fetch)]
        return list(_on_hub(wanted, fetch=fetch))
    except (ModelError, OSError) as error:
        return [Verified(field=wanted.field, model=model_of(wanted), file=names_of(wanted), fault=str(error))]


def names_of(wanted: Wanted) -> str:
    """Return the names of the files; of alternatives, the best."""
    return wanted.name if isinstance(wanted, PublishedFile) else ", ".join((*wanted.beside, wanted.weights[0]))


def model_of(wanted: Wanted) -> str:
    """Return where files are published, in few words."""
    if isinstance(wanted, PublishedFile):
        return wanted.url.partition("://")[2].partition("/")[0]
    return wanted.repository


def _published(file: PublishedFile, *, fetch: bool) -> Verified:
    path = weights_folder() / file.name
    fault = find_fault(file, path, afresh=True)
    if fault and fetch:
        path.unlink(missing_ok=True)
        find_published(file, download=True)
        fault = ""
    is_here = path.is_file()
    return Verified(
        field=file.field,
        model=model_of(file),
        file=file.name,
        size=path.stat().st_size if is_here else 0,
        how="SHA-256, published" if file.sha256 else "SHA-256, the first one found",
        folder=str(path.parent) if is_here else "",
        fault=f"{file.field}: {fault}" if fault else "",
    )


def _on_hub(files: HubFiles, *, fetch: bool) -> Iterator[Verified]:
    if not fetch and not find_cached(files):
        from huggingface_hub import constants

        where = f"looked in {constants.HF_HUB_CACHE}"
        raise ModelError(f"{files.field}: {files.repository} is not on this machine, or not all of it: {where}")
    folder, names = _find(files, fetch=fetch)
    damaged = [folder / name for name in names if _verify(folder / name)[1]]
    if damaged and fetch:
        for path in damaged:
            path.resolve().unlink()
            path.unlink(missing_ok=True)
        folder, names = _find(files, fetch=True)
    for name in names:
        kind, fault = _verify(folder / name)
        yield Verified(
            field=files.field,
            model=f"{files.repository} {folder.name[:12]}",
            file=name,
            size=(folder / name).stat().st_size,
            how=kind or UNVERIFIED,
            folder=str(folder.parents[2]),
            fault=f"{files.field}: {folder / name} is damaged: {fault}" if fault else "",
        )


def _find(files: HubFiles, *, fetch: bool) -> tuple[Path, list[str]]:
    """Return the commit's folder in the cache, and the names of the files in it."""
    weights = find_on_hub(files, download=fetch)
    chosen = next(name for name in files.weights if weights.as_posix().endswith(f"/{name}"))
    return weights.parents[len(Path(chosen).parts) - 1], [*files.beside, chosen]


def _verify(path: Path) -> tuple[str, str]:
    return verify_blob(path)
