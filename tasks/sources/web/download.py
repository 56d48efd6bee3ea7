"""Fetch a file from an untrusted address, from the public internet only, within limits of size and time.

Needs the network, through httpcore (the connections below httpx), since that lets the program choose the machine that
it connects to: a name is resolved once, every address that it resolves to is checked, and the connection goes to one of
these very addresses, under the name's own Host header and certificate. Each redirect is checked the same way. No
cookies, no credentials, no proxy, no compression.

One deadline holds for a whole download, with its resolution, redirects and tries: each wait for the network may take no
longer than what is left of it, so that a server gains nothing by answering in drips.
"""

import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpcore

from pairwright.tasks.store.addresses import Address, RefusedAddressError, is_public, parse_address

REDIRECTS = 5
TRIES = 3
PAUSE_S = 0.25
"""Before the second try; twice as long before each later one."""
AGENT = "pairwright"
_REDIRECTING = (301, 302, 303, 307, 308)
_BUSY = (408, 425, 429)
_GONE = (404, 410)
_OPT_OUTS = ("noai", "noimageai")


class DownloadError(Exception):
    """Say why there is no file: a constant ``reason``, the particulars, and whether another try may help."""

    def __init__(self, reason: str, detail: str = "", *, final: bool) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.final = final


@dataclass(frozen=True, slots=True)
class Limits:
    """Say how much a download may be, and how long it may take."""

    max_bytes: int
    timeout_s: float


def resolve_host(host: str, port: int, timeout_s: float) -> Sequence[str]:
    """Return the IP addresses of a host, in the system's order of preference.

    Raises:
        OSError: there is none, or (``TimeoutError``) none was found in time.
    """
    found = queue.SimpleQueue[list[str] | OSError]()

    def ask() -> None:
        try:
            answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.put(list(dict.fromkeys(str(answer[4][0]) for answer in answers)))
        except (OSError, UnicodeError) as error:
            found.put(error if isinstance(error, OSError) else OSError(str(error)))

    # The system's resolver has a patience of its own and cannot be interrupted.
    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = found.get(timeout=timeout_s)
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(answer, OSError):
        raise answer
    return answer


@cache
def _trust() -> ssl.SSLContext:
    return httpcore.default_ssl_context()


@dataclass(frozen=True, slots=True)
class Network:
    """Say how hosts are found, which of their addresses may be asked, and whose certificates count."""

    resolve: Callable[[str, int, float], Sequence[str]] = resolve_host
    is_allowed: Callable[[str], bool] = is_public
    trust: Callable[[], ssl.SSLContext] = _trust


PUBLIC = Network()


def download(url: str, limits: Limits, network: Network = PUBLIC) -> bytes:
    """Return what an address holds.

    Raises:
        DownloadError: it may not be fetched, or could not.
    """
    deadline = time.monotonic() + limits.timeout_s
    for number in range(TRIES):
        try:
            return _follow(url, limits, network, deadline)
        except DownloadError as error:
            pause = PAUSE_S * 2**number
            if error.final or number + 1 == TRIES or time.monotonic() + pause >= deadline:
                raise
            time.sleep(pause)
    raise AssertionError("unreachable")


def _follow(url: str, limits: Limits, network: Network, deadline: float) -> bytes:
    try:
        address = parse_address(url)
        for _ in range(REDIRECTS + 1):
            found = _fetch(address, limits, network, deadline)
            if isinstance(found, bytes):
                return found
            address = found
    except RefusedAddressError as refused:
        raise DownloadError(refused.reason, refused.detail, final=True) from refused
    raise DownloadError("too many redirects", f"more than {REDIRECTS}", final=True)


def _fetch(address: Address, limits: Limits, network: Network, deadline: float) -> bytes | Address:
    """Return what an address answers, or where it says to look."""
    backend = _CheckedBackend(_find(address, network, deadline), deadline)
    url = httpcore.URL(
        scheme=address.scheme.encode(), host=address.host.encode(), port=address.port, target=address.target.encode()
    )
    headers = {"Host": address.authority, "User-Agent": AGENT, "Accept": "image/*", "Accept-Encoding": "identity"}
    context = network.trust() if address.scheme == "https" else None
    try:
        with (
            httpcore.ConnectionPool(ssl_context=context, network_backend=backend) as pool,
            pool.stream("GET", url, headers={**headers, "Connection": "close"}) as response,
        ):
            return _take(response, address, limits)
    except httpcore.TimeoutException as error:
        raise DownloadError("time limit", f"{limits.timeout_s:g} s", final=False) from error
    except httpcore.ConnectError as error:
        raise DownloadError("no connection", str(error), final=False) from error
    except (httpcore.NetworkError, httpcore.ProtocolError) as error:
        raise DownloadError("download broke off", str(error), final=False) from error


def _find(address: Address, network: Network, deadline: float) -> Sequence[str]:
    """Return the addresses of the host; all of them must be allowed, so that none is reached by trying again."""
    try:
        found = network.resolve(address.host, address.port, max(0.0, deadline - time.monotonic()))
    except TimeoutError as error:
        raise DownloadError("time limit", "while the host was looked up", final=False) from error
    except OSError as error:
        raise DownloadError("host not found", f"{address.host}: {error.strerror or error}", final=False) from error
    if not found:
        raise DownloadError("host not found", address.host, final=False)
    if refused := [ip for ip in found if not network.is_allowed(ip)]:
        raise DownloadError("not a public address", f"{address.host} is at {refused[0]}", final=True)
    return found


def _take(response: httpcore.Response, address: Address, limits: Limits) -> bytes | Address:
    headers = [(name.lower(), value.decode("utf-8", "replace")) for name, value in response.headers]
    status = response.status
    if status in _REDIRECTING:
        location = next((value for name, value in headers if name == b"location"), "")
        if not location:
            raise DownloadError("redirect leads nowhere", f"HTTP {status}", final=True)
        return address.join(location)
    if status != 200:
        reason = "not found" if status in _GONE else "server error" if status >= 500 else "server refuses"
        raise DownloadError(reason, f"HTTP {status}", final=status < 500 and status not in _BUSY)
    tags = {tag.strip().lower() for name, value in headers if name == b"x-robots-tag" for tag in _split(value)}
    if tags.intersection(_OPT_OUTS):
        raise DownloadError("server opts out", "X-Robots-Tag", final=True)
    length = next((value for name, value in headers if name == b"content-length"), "")
    if length.isdecimal() and len(length) < 20 and int(length) > limits.max_bytes:
        raise _too_large(limits)
    pieces: list[bytes] = []
    size = 0
    for piece in response.iter_stream():
        size += len(piece)
        if size > limits.max_bytes:
            raise _too_large(limits)
        pieces.append(piece)
    return b"".join(pieces)


def _split(value: str) -> list[str]:
    return value.replace(":", ",").split(",")


def _too_large(limits: Limits) -> DownloadError:
    return DownloadError("file too large", f"the limit is {limits.max_bytes} bytes", final=True)


class _CheckedBackend(httpcore.SyncBackend):
    """Connect to addresses that were checked, whatever host is asked for, and to nothing after the deadline."""

    def __init__(self, addresses: Sequence[str], deadline: float) -> None:
        self._addresses = addresses
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,  # noqa: ARG002  (the name that was resolved before)
        port: int,
        timeout: float | None = None,  # noqa: ARG002  (the deadline counts)
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Return a connection to the first address that answers; each has its share of the time that is left."""
        fault: Exception = httpcore.ConnectError("no address")
        for number, ip in enumerate(self._addresses):
            share = _left(self._deadline) / (len(self._addresses) - number)
            try:
                stream = super().connect_tcp(ip, port, share, local_address, socket_options)
                return _TimedStream(stream, self._deadline)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                fault = error
        raise fault


class _TimedStream(httpcore.NetworkStream):
    """Be a connection on which no wait goes beyond the deadline."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: float) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        return self._stream.read(max_bytes, _left(self._deadline))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        self._stream.write(buffer, _left(self._deadline))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        stream = self._stream.start_tls(ssl_context, server_hostname, _left(self._deadline))
        return _TimedStream(stream, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _left(deadline: float) -> float:
    """Return the seconds that are left; ``httpcore.ReadTimeout`` where none are."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise httpcore.ReadTimeout("the time is over")
    return left
