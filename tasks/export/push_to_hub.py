"""Send an export's folder to a dataset repository of Hugging Face's Hub.

What is owed are the files that the repository does not have with the same hash; they are sent, and then appear there in
one commit, together with the removal of an earlier export's files. So that is what resumes a push that was cut: a large
file that had arrived is not sent again, also where no commit names it yet (the Hub's client asks before it sends). A
folder of more files than one commit should have takes several, and the last one brings the README.

Needs huggingface-hub and a token that may write. The token is read by the Hub's client, and appears in no message.
"""

import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairwright.schemas.errors import ConfigError, PairwrightError, ServerError, StoreError
from pairwright.tasks.export.claim_target import MARKER, README
from pairwright.tasks.export.formats import FORMATS
from pairwright.tasks.models.fetching.fetch_hub import GIT, SHA256, hash_blob
from pairwright.tasks.models.fetching.show_fetching import showing

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd, HfApi, RepoFile

FIELD = "--push-to-hub"
KIND = "dataset"
FILES_PER_COMMIT = 1_000
"""The Hub takes 25,000; it grows slow long before."""
FILES_AT_ONCE, BYTES_AT_ONCE = 100, 256_000_000
"""Files are sent in groups of so many, or so large, and the bar moves when a group is there."""
ATTRIBUTES = ".gitattributes"
"""The Hub makes it with the repository."""
LOGIN = "Log in with `hf auth login`, or set HF_TOKEN: https://huggingface.co/settings/tokens makes one that may write"
GOES_ON = "What was sent is kept: the same command goes on with it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Say where on the Hub a folder goes."""

    repository: str
    """OWNER/NAME; it is made where there is none."""
    branch: str = "main"
    private: bool = False
    """Whether only its owner may see it. A repository that is public already is refused then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """Say what was sent."""

    address: str
    private: bool
    sent: int
    """Files."""
    size: int
    """Their bytes."""
    kept: int
    """Files that the repository had already."""
    removed: int
    """Files of an earlier export."""


def check_destination(to: Destination) -> None:
    """Refuse what could not be pushed to, before anything is exported; nothing is made.

    Raises:
        ConfigError: there is no token, or it may not read there; the name is wrong; what is there is no export.
        ServerError: the Hub does not answer.
    """
    with _asking(to) as hub:
        _check(to, _find(hub, to))


def push_folder(folder: Path, to: Destination) -> Pushed:
    """Have a repository hold what an export's folder holds.

    Raises:
        ConfigError: the token may not write there, or what ``check_destination`` refuses.
        ServerError: the Hub did not answer, or broke off; the same call goes on.
        StoreError: a file cannot be read.
    """
    with _asking(to) as hub:
        is_private = _prepare(hub, to)
        there = _list(hub, to)
        _check_files(to, there)
        files = _list_files(folder)
        owed = [name for name, path in files.items() if not _is_same(path, there.get(name))]
        stale = [name for name in there if name not in files and name.partition("/")[0] in _owned()]
        _send(hub, to, {name: files[name] for name in owed}, stale)
        branch = "" if to.branch == "main" else f"/tree/{to.branch}"
        return Pushed(
            address=f"{hub.endpoint}/datasets/{to.repository}{branch}",
            private=is_private,
            sent=len(owed),
            size=sum(files[name].stat().st_size for name in owed),
            kept=len(files) - len(owed),
            removed=len(stale),
        )


@contextmanager
def _asking(to: Destination) -> Generator["HfApi"]:
    """Give the Hub's client, quiet; say what goes wrong with it in our words."""
    try:
        from huggingface_hub import HfApi, get_token
        from huggingface_hub.utils import validate_repo_id
    except ImportError as error:
        raise ConfigError(f"{FIELD}: needs huggingface-hub: python -m pip install -e '.[hub]'") from error
    if "/" not in to.repository:
        raise ConfigError(f"{FIELD} {to.repository}: whose is it? Give OWNER/NAME")
    token = get_token()
    if not token:
        raise ConfigError(f"{FIELD}: there is no token of the Hub on this machine. {LOGIN}")
    try:
        with _quiet():
            validate_repo_id(to.repository)
            yield HfApi(library_name="pairwright")
    except PairwrightError:
        raise
    except Exception as error:
        raise _explain(error, to, token) from error


@contextmanager
def _quiet() -> Generator[None]:
    """Silence the Hub's client: its lines about retries hold signed addresses, and it has a bar for each file."""
    from huggingface_hub import utils

    level = utils.logging.get_verbosity()
    had_bars = not utils.are_progress_bars_disabled()
    utils.logging.set_verbosity_error()
    utils.disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about cards without metadata, which some forms have
            yield
    finally:
        utils.logging.set_verbosity(level)
        if had_bars:
            utils.enable_progress_bars()


def _explain(error: Exception, to: Destination, token: str) -> PairwrightError:
    """Return the error that says what went wrong, and what to do; without the client's addresses, and the token."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    where = f"{FIELD} {to.repository}"
    causes = list(_causes(error))
    answer = next((one for one in causes if isinstance(one, HfHubHTTPError)), None)
    if isinstance(error, HFValidationError):
        return ConfigError(f"{where}: {error}")
    if answer is None:
        if isinstance(error, OSError) and error.filename:
            return StoreError(f"{error.filename}: {error.strerror}")
        text = f"{type(causes[-1]).__name__}: {causes[-1]}".replace(token, "***")
        return ServerError(f"{where}: the Hub could not be reached, or broke off ({text}). {GOES_ON}")
    code, said = answer.response.status_code, (answer.server_message or "").replace(token, "***").strip()
    told = f" It says: {said}" if said else ""
    if code == 401:
        return ConfigError(f"{where}: the Hub does not accept the token. {LOGIN}.{told}")
    if code == 403:
        owner = to.repository.partition("/")[0]
        return ConfigError(f"{where}: the token may not write there, or {owner} is somebody else. {LOGIN}.{told}")
    if code == 404:
        return ConfigError(f"{where}: the Hub finds no such repository, or the token may not see it.{told}")
    return ServerError(f"{where}: the Hub answers {code}.{told} {GOES_ON}")


def _causes(error: BaseException | None) -> Iterable[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _prepare(hub: "HfApi", to: Destination) -> bool:
    """Have the repository and the branch; return whether it is private."""
    found = _find(hub, to)
    _check(to, found)
    if found is None:
        hub.create_repo(to.repository, repo_type=KIND, private=to.private or None, exist_ok=True)
        found = hub.repo_info(to.repository, repo_type=KIND)
        _check(to, found)
    if to.branch != "main":
        hub.create_branch(to.repository, repo_type=KIND, branch=to.branch, exist_ok=True)
    return bool(found.private)


def _find(hub: "HfApi", to: Destination) -> Any:
    """Return what the Hub says of the repository; ``None``: there is none."""
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        return hub.repo_info(to.repository, repo_type=KIND)
    except RepositoryNotFoundError:
        return None


def _check(to: Destination, found: Any) -> None:
    """Refuse a repository that others can see, or that holds something else."""
    if found is None:
        return
    if to.private and not found.private:
        raise ConfigError(
            f"{FIELD} {to.repository}: is public. Make it private in its settings on the Hub, "
            "give a new name, or leave out --private"
        )
    _check_files(to, [file.rfilename for file in found.siblings or []])


def _check_files(to: Destination, names: Iterable[str]) -> None:
    other = sorted({*names} - {ATTRIBUTES})
    if other and MARKER not in other:
        raise ConfigError(
            f"{FIELD} {to.repository}: holds what no export made ({', '.join(other[:3])}); "
            "give a new name, or remove its files on the Hub"
        )


def _list(hub: "HfApi", to: Destination) -> dict[str, "RepoFile"]:
    from huggingface_hub import RepoFile

    tree = hub.list_repo_tree(to.repository, repo_type=KIND, revision=to.branch, recursive=True)
    return {file.path: file for file in tree if isinstance(file, RepoFile)}


def _list_files(folder: Path) -> dict[str, Path]:
    """Return the files by name: first the marker, by which the repository is known as ours, last the README."""
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: paths[name] for name in sorted(paths, key=lambda name: (name == README, name != MARKER, name))}


def _is_same(path: Path, there: "RepoFile | None") -> bool:
    if there is None or path.stat().st_size != there.size:
        return False
    return hash_blob(path, SHA256) == there.lfs.sha256 if there.lfs else hash_blob(path, GIT) == there.blob_id


def _owned() -> set[str]:
    """Return the names that exports make; others in a repository are its owner's."""
    return {name for form in FORMATS.values() for name in form.owns}


def _send(hub: "HfApi", to: Destination, owed: Mapping[str, Path], stale: Sequence[str]) -> None:
    """Send files, commit by commit; what is stale leaves with the last one."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    additions = [CommitOperationAdd(name, path) for name, path in owed.items()]
    removals = [CommitOperationDelete(name) for name in stale]
    starts = range(0, max(len(additions), 1), FILES_PER_COMMIT)
    with showing(to.repository, "sending") as progress:
        if additions:
            progress.begin(0, sum(one.upload_info.size for one in additions))
        for start in starts:
            part, last = additions[start : start + FILES_PER_COMMIT], start == starts[-1]
            for group in _groups(part):
                hub.preupload_lfs_files(
                    to.repository, group, repo_type=KIND, revision=to.branch, free_memory=False
                )  # a group that is there is not sent again by the commit
                progress.advance(sum(one.upload_info.size for one in group))
            if operations := [*part, *(removals if last else [])]:
                hub.create_commit(
                    to.repository,
                    operations,
                    repo_type=KIND,
                    revision=to.branch,
                    commit_message="Upload an export of Pairwright" + ("" if last else f", from file {start + 1:,}"),
                )


def _groups(additions: Sequence["CommitOperationAdd"]) -> Iterator[list["CommitOperationAdd"]]:
    group, size = list["CommitOperationAdd"](), 0
    for one in additions:
        if group and (len(group) == FILES_AT_ONCE or size + one.upload_info.size > BYTES_AT_ONCE):
            yield group
            group, size = [], 0
        group.append(one)
        size += one.upload_info.size
    if group:
        yield group
