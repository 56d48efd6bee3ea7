"""Fetch one large file over HTTPS into a part that is taken up again where it broke off.

Writes the part, and beside it ``PART.json``: which address and which version (ETag) its bytes are of. Taken up is only
that very version (``If-Range``), so that no file is joined of two. Needs the network, through httpx2, which knows the
user's proxies and certificates. Only https, and http on loopback; a redirect may not lead from the internet to machines
beside this one. Nothing here says whether the bytes are the right ones: the caller compares their hash.
"""

import ipaddress
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pairwright.tasks.models.fetching.show_fetching import Progress, showing
from pairwright.tasks.store.addresses import Address, RefusedAddressError, is_public, parse_address

if TYPE_CHECKING:
    import httpx2

REDIRECTS = 10
LONGEST_WAIT_S = 120.0
"""What a server may ask for by ``Retry-After``."""
SPARE_BYTES = 100_000_000
"""Left free on the disk."""
_REDIRECTING = (301, 302, 303, 307, 308)
_BUSY = (408, 425, 429)
_PAGES = ("text/html", "application/xhtml+xml")


class FetchError(Exception):
    """Say why a file cannot be had; what was fetched of it is kept."""


class LostError(Exception):
    """Say why a connection brought no more; another try may help, after ``wait_s`` seconds."""

    def __init__(self, reason: str, wait_s: float = 0.0) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Say how much may be fetched, and how long anything may take."""

    max_bytes: int = 20_000_000_000
    connect_s: float = 20.0
    silence_s: float = 60.0
    """Longest wait for the next bytes."""
    least_bytes: int = 65_536
    """What must come within ``silence_s``, so that a server that answers in drips counts as lost."""
    tries: int = 6
    """Tries in a row that bring less than ``least_bytes``."""
    pause_s: float = 1.0
    """Before the second of them; twice as long before each later one."""


LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """Say what a part's bytes are of."""

    url: str
    etag: str
    total: int


def fetch_file(url: str, part: Path, *, limits: Limits | None = None, token: str = "", shown: str = "") -> None:
    """Fetch what an address holds into ``part``, going on where an earlier call ended.

    Args:
        url: where the file is.
        part: what is written; its folder is there.
        limits: how much may come, and how long it may take; ``LIMITS`` without.
        token: sent to the address's own host only.
        shown: the file's name for people; empty: the part's.

    Raises:
        FetchError: it may not be fetched, or could not; the part is kept where it can be taken up.
    """
    import httpx2

    limits = limits or LIMITS
    times = httpx2.Timeout(limits.silence_s, connect=limits.connect_s)
    fruitless, most = 0, _size(part)
    with httpx2.Client(timeout=times, headers=_HEADERS) as client, showing(shown or part.stem) as progress:
        while True:
            try:
                return _go_on(client, _Place(url, token), part, limits=limits, progress=progress)
            except LostError as lost:
                fruitless = 1 if _size(part) - most >= limits.least_bytes else fruitless + 1
                most = max(most, _size(part))  # starting over and over again is no progress
                if fruitless >= limits.tries:
                    raise FetchError(f"{lost}; gave up after {fruitless} tries") from lost
                pause = max(lost.wait_s, limits.pause_s * 2 ** (fruitless - 1))
                progress.say(f"{lost}; next try in {pause:.3g} s")
                time.sleep(pause)
            except OSError as error:
                raise FetchError(f"{part} cannot be written: {error.strerror or error}") from error


def ask_size(url: str, limits: Limits | None = None) -> int:
    """Return how many bytes an address holds; 0: its server does not say.

    Raises:
        FetchError: it may not be fetched, or no server answers.
    """
    import httpx2

    limits = limits or LIMITS
    times = httpx2.Timeout(limits.connect_s)
    try:
        with httpx2.Client(timeout=times, headers=_HEADERS) as client, _answer(client, _Place(url, ""), {}) as response:
            return _version_of(response, url, limits).total
    except LostError as lost:
        raise FetchError(str(lost)) from lost


@dataclass(frozen=True, slots=True)
class _Place:
    url: str
    token: str


def _is_same(address: Address, first: Address) -> bool:
    return (address.scheme, address.host, address.port) == (first.scheme, first.host, first.port)


_HEADERS = {"User-Agent": "pairwright", "Accept-Encoding": "identity"}


def _go_on(client: "httpx2.Client", place: _Place, part: Path, *, limits: Limits, progress: Progress) -> None:
    """Fetch what a part lacks, with one request."""
    kept = _read_version(part, place.url)
    start = _size(part) if kept else 0
    asks = {"Range": f"bytes={start}-", "If-Range": kept.etag} if kept and start else {}
    with _answer(client, place, asks) as response:
        if kept and response.status_code == 416:
            if response.headers.get("Content-Range") == f"bytes */{start}" and start == kept.total:
                return  # nothing was lacking
            forget(part)
            raise LostError("the server does not know the rest of the file: it starts over")
        version = _version_of(response, place.url, limits)
        if response.status_code != 206:
            start = 0
        elif version != kept or not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            forget(part)
            raise LostError("the file has changed since the download began: it starts over")
        _check_room(part, version.total - start)
        if not start:
            forget(part)
            _describe(part, version)
        progress.begin(start, version.total)
        _write(response, part, start, limits=limits, progress=progress)
    if not _size(part) or (version.total and _size(part) != version.total):
        raise LostError(f"{_size(part)} of {version.total} bytes came")


@contextmanager
def _answer(client: "httpx2.Client", place: _Place, asks: dict[str, str]) -> "Generator[httpx2.Response]":
    """Yield the first answer that is no redirect."""
    import httpx2

    try:
        address = first = parse_address(place.url)
        check_address(address, first)
        for _ in range(REDIRECTS + 1):
            own = {"Authorization": f"Bearer {place.token}"} if place.token and _is_same(address, first) else {}
            with client.stream("GET", address.url, headers={**asks, **own}) as response:
                if response.status_code not in _REDIRECTING:
                    yield response
                    return
                address = address.join(response.headers.get("Location", ""))
                check_address(address, first)
    except RefusedAddressError as refused:
        raise FetchError(f"{refused.reason}: {refused.detail}") from refused
    except httpx2.TransportError as error:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise FetchError(f"the server's certificate is not trusted here: {error}") from error
        raise LostError(f"the connection was lost ({type(error).__name__}: {error})") from error
    raise FetchError(f"more than {REDIRECTS} redirects")


def resolve_host(host: str) -> list[str]:
    """Return the addresses of a host; none where this machine cannot tell, since a proxy may."""
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except OSError:
        return []


def check_address(address: Address, first: Address, resolve: Callable[[str], list[str]] = resolve_host) -> None:
    """Refuse an address that may not be asked on the way from ``first``.

    Raises:
        RefusedAddressError: it is not https (on loopback, http will do), or it is nearer to this machine than the first
            one: a machine beside this one, or this one itself, where the first was on the internet.
    """
    here = _nearness(address.host, resolve)
    if address.scheme != "https" and here != LOOPBACK:
        raise RefusedAddressError("not an https address", address.shown)
    if here > _nearness(first.host, resolve):
        raise RefusedAddressError("redirected to a private address", address.shown)


def may_ask(url: str) -> bool:
    """Say whether a download may begin at an address."""
    try:
        first = parse_address(url)
        check_address(first, first)
    except RefusedAddressError:
        return False
    return True


INTERNET, BESIDE, LOOPBACK, SPECIAL = range(4)


def _nearness(host: str, resolve: Callable[[str], list[str]]) -> int:
    return max(map(_nearness_of_ip, resolve(host)), default=INTERNET)


def _nearness_of_ip(text: str) -> int:
    ip = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped:
        ip = ip.ipv4_mapped
    if is_public(str(ip)):
        return INTERNET
    if ip.is_loopback:
        return LOOPBACK
    return SPECIAL if ip.is_link_local or ip.is_multicast or ip.is_unspecified else BESIDE


def _version_of(response: "httpx2.Response", url: str, limits: Limits) -> Version:
    """Return which version of the file an answer holds (part of); a length of 0 is not known."""
    status, headers = response.status_code, response.headers
    if status >= 500 or status in _BUSY:
        raise LostError(f"the server answers HTTP {status}", _seconds(headers.get("Retry-After", "")))
    if status not in (200, 206):
        raise FetchError(f"the server answers HTTP {status}")
    kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind in _PAGES:
        raise FetchError(f"the server answers a web page ({kind}), not a file")
    if headers.get("Content-Encoding", "identity") != "identity":
        raise FetchError(f"the server sends it compressed ({headers['Content-Encoding']})")
    length = headers.get("Content-Range", "").rpartition("/")[2] if status == 206 else headers.get("Content-Length", "")
    total = int(length[:20]) if length.isdecimal() else 0
    if total > limits.max_bytes:
        raise FetchError(f"it has {total} bytes; the limit is {limits.max_bytes}")
    etag = headers.get("ETag", "")
    return Version(url=url, etag="" if etag.startswith("W/") else etag, total=total)


def _seconds(text: str) -> float:
    return min(float(text), LONGEST_WAIT_S) if text.isdecimal() and len(text) < 9 else 0.0


def _check_room(part: Path, lacking: int) -> None:
    free = shutil.disk_usage(part.parent).free
    if lacking + SPARE_BYTES > free:
        raise FetchError(f"{part.parent} has {free / 1e9:.1f} GB free; {lacking / 1e9:.1f} GB are still to come")


def _write(response: "httpx2.Response", part: Path, start: int, *, limits: Limits, progress: Progress) -> None:
    """Append what comes; a server that is all but silent counts as lost."""
    size = start
    since, came = time.monotonic(), 0
    with part.open("r+b" if start else "wb") as file:
        file.seek(start)
        for piece in response.iter_raw():
            size, came = size + len(piece), came + len(piece)
            if size > limits.max_bytes:
                forget(part)
                raise FetchError(f"more than the limit of {limits.max_bytes} bytes came")
            file.write(piece)
            progress.advance(len(piece))
            if time.monotonic() - since > limits.silence_s:
                if came < limits.least_bytes:
                    raise LostError(f"only {came} bytes came in {limits.silence_s:g} s")
                since, came = time.monotonic(), 0
        file.flush()
        os.fsync(file.fileno())


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _note(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def forget(part: Path) -> None:
    """Remove a part, and what is written down about it."""
    part.unlink(missing_ok=True)
    _note(part).unlink(missing_ok=True)


def _describe(part: Path, version: Version) -> None:
    """Write down what the part will be of, before it holds anything; without an ETag it cannot be taken up."""
    note = {"url": version.url, "etag": version.etag, "total": version.total}
    _note(part).write_text(json.dumps(note), encoding="utf-8")


def _read_version(part: Path, url: str) -> Version | None:
    """Return what a part is of; nothing where it cannot be taken up."""
    try:
        note = json.loads(_note(part).read_bytes())
        kept = Version(url=str(note["url"]), etag=str(note["etag"]), total=int(note["total"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return kept if kept.etag and kept.url == url else None
