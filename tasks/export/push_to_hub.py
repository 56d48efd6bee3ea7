"""Push an export, or a finished model, to a repository of Hugging Face's Hub.

``HfApi.upload_folder`` sends files that the repository lacks; files of an earlier push that this
one lacks are deleted. Needs huggingface-hub and a token with write access; the Hub's client reads
it, and it appears in no message.
"""

import glob
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from pairwright.schemas.errors import (
    ConfigError,
    PairwrightError,
    ServerError,
    StoreError,
    wrap_errors,
)
from pairwright.tasks.export.formats import FORMATS
from pairwright.tasks.store.manifest import MANIFEST, MARKER, read_manifest, refuse_damage

if TYPE_CHECKING:
    from huggingface_hub import HfApi

FIELD = "--push-to-hub"
ATTRIBUTES = ".gitattributes"  # file that the Hub creates with the repository
LOGIN = (
    "Log in with `hf auth login`, or set HF_TOKEN to a token that may write: "
    "https://huggingface.co/settings/tokens"
)
RESUME = "Files already sent are kept: the same command continues"


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Repository on the Hub that a folder is pushed to."""

    repository: str  # OWNER/NAME; created if missing
    kind: Literal["dataset", "model"] = "dataset"
    branch: str = "main"
    # whether only its owner may see it; a repository that is already public is then refused
    private: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """State of a repository after a push."""

    address: str
    private: bool
    files: int
    size_bytes: int
    removed: int  # number of files of an earlier push that were deleted


def check_destination(to: Destination) -> None:
    """Refuse an unusable repository before there is anything to push; creates nothing."""
    with _open_hub(to) as hub:
        _find(hub, to)


def push_folder(folder: Path, to: Destination) -> Pushed:
    """Make a repository equal to a folder; after a ``ServerError`` the same call continues."""
    if to.kind == "model":
        refuse_damage(folder, field=FIELD)
    with _open_hub(to) as hub:
        info = _prepare(hub, to)
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        names = {path.relative_to(folder).as_posix() for path in paths}
        stale = [name for name in _list_owned(hub, to, info) if name not in names]
        hub.upload_folder(
            repo_id=to.repository,
            repo_type=to.kind,
            revision=to.branch,
            folder_path=folder,
            delete_patterns=[glob.escape(name) for name in stale] or None,
            commit_message=f"Upload a {to.kind} made by Pairwright",
        )
        return Pushed(
            address=_address(hub, to),
            private=bool(info.private),
            files=len(paths),
            size_bytes=sum(path.stat().st_size for path in paths),
            removed=len(stale),
        )


def _prepare(hub: "HfApi", to: Destination) -> Any:
    """Create repository and branch where missing; return the Hub's information about the branch."""
    if _find(hub, to) is None:
        private = to.private or None
        hub.create_repo(to.repository, repo_type=to.kind, private=private, exist_ok=True)
    if to.branch != "main":
        hub.create_branch(to.repository, repo_type=to.kind, branch=to.branch, exist_ok=True)
    info: Any = hub.repo_info(to.repository, repo_type=to.kind, revision=to.branch)
    _check(to, info)
    return info


def _address(hub: "HfApi", to: Destination) -> str:
    section = "datasets/" if to.kind == "dataset" else ""
    branch = "" if to.branch == "main" else f"/tree/{to.branch}"
    return f"{hub.endpoint}/{section}{to.repository}{branch}"


def _list_owned(hub: "HfApi", to: Destination, info: Any) -> list[str]:
    """Return the repository's files that belong to an export, or to its model's manifest."""
    names = [file.rfilename for file in info.siblings or []]
    if to.kind == "dataset":
        owned = {name for form in FORMATS.values() for name in form.owns}
        return [name for name in names if name.partition("/")[0] in owned]
    if MANIFEST not in names:
        return []
    path = hub.hf_hub_download(to.repository, MANIFEST, revision=info.sha)
    try:
        listed = read_manifest(Path(path))
    except ValidationError as error:
        raise ConfigError(
            f"{FIELD} {to.repository}: its {MANIFEST} cannot be read; give a new name"
        ) from error
    return [name for name in names if name in listed]


@contextmanager
def _open_hub(to: Destination) -> Generator["HfApi"]:
    """Yield the Hub's client, silent: its lines about retries contain signed addresses."""
    try:
        from huggingface_hub import HfApi, get_token, utils
    except ImportError as error:
        raise ConfigError(
            f"{FIELD}: needs huggingface-hub: python -m pip install -e '.[hub]'"
        ) from error
    if "/" not in to.repository:
        raise ConfigError(f"{FIELD} {to.repository}: has no owner; give OWNER/NAME")
    token = get_token()
    if not token:
        raise ConfigError(f"{FIELD}: no token of the Hub on this machine. {LOGIN}")
    utils.logging.set_verbosity_error()
    if not sys.stderr.isatty():
        utils.disable_progress_bars()
    explain = partial(_explain, to=to, token=token)
    with wrap_errors(explain, keep=PairwrightError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about cards without metadata, as of some forms
        utils.validate_repo_id(to.repository)
        yield HfApi(library_name="pairwright")


def _explain(error: Exception, *, to: Destination, token: str) -> PairwrightError:
    """Return the error with its remedy, without the client's addresses and the token."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    where = f"{FIELD} {to.repository}"
    if isinstance(error, HFValidationError):
        return ConfigError(f"{where}: {error}")
    causes: list[BaseException] = [error]
    while cause := causes[-1].__cause__:
        causes.append(cause)
    answer = next((cause for cause in causes if isinstance(cause, HfHubHTTPError)), None)
    if answer is None:
        if isinstance(error, OSError) and error.filename:
            return StoreError(f"{error.filename}: {error.strerror}")
        text = f"{type(causes[-1]).__name__}: {causes[-1]}".replace(token, "***")
        return ServerError(
            f"{where}: the Hub could not be reached, or the connection broke ({text}). {RESUME}"
        )
    code = answer.response.status_code
    message = (answer.server_message or "").replace(token, "***").strip()
    reply = f" It says: {message.rstrip('.')}." if message else ""
    account = to.repository.partition("/")[0]
    refusals = {
        401: f"the Hub does not accept the token. {LOGIN}.",
        403: f"the token may not write there, or {account} is another account. {LOGIN}.",
        404: "the Hub finds no such repository, or the token may not see it.",
    }
    if code in refusals:
        return ConfigError(f"{where}: {refusals[code]}{reply}")
    return ServerError(f"{where}: the Hub answers {code}.{reply} {RESUME}")


def _find(hub: "HfApi", to: Destination) -> Any:
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        info = hub.repo_info(to.repository, repo_type=to.kind)
    except RepositoryNotFoundError:
        return None
    _check(to, info)
    return info


def _check(to: Destination, info: Any) -> None:
    if to.private and not info.private:
        raise ConfigError(
            f"{FIELD} {to.repository}: is public. Make it private in its settings on the Hub, "
            "give a new name, or leave out --private"
        )
    names = {file.rfilename for file in info.siblings or []} - {ATTRIBUTES}
    marker = MARKER if to.kind == "dataset" else MANIFEST
    if names and marker not in names:
        examples = ", ".join(sorted(names)[:3])
        raise ConfigError(
            f"{FIELD} {to.repository}: holds files that Pairwright did not make ({examples}); "
            "give a new name, or remove its files on the Hub"
        )
