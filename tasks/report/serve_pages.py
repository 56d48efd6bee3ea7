"""Serve the pages of a dataset to the person at this machine, and to nobody else.

Listens on 127.0.0.1 only. Whoever has the token that was printed gets a cookie for it; all else is 401. Pages of other
sites cannot use it (SameSite, Origin, a header that only our pages know, no frames), nor reach this server under
another name (Host). No part of an address is ever a path: files are found in tables of names.
"""

import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from pairwright.schemas.errors import ConfigError, StoreError
from pairwright.tasks.report.browse_pages import FILES, BrowsePages, NotMadeYetError
from pairwright.tasks.store.decisions import parse_decisions

HOST = "127.0.0.1"
HEADER = "x-pairwright-token"
MOST_BYTES = 8 << 20
"""Of what a page sends."""
POLICY = (
    "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
ALWAYS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",  # no browser keeps a picture that may be removed on request
}
"""Headers of all answers."""
WAIT = (
    "<!doctype html><meta charset=utf-8><meta name=color-scheme content='light dark'><title>Pairwright</title>"
    "<p>The charts are being made: some ten seconds for 5,000 rows. Then they are here. <a href='/'>Back</a>"
)
LOCKED_OUT = (
    "<!doctype html><meta charset=utf-8><title>Pairwright</title><p>Open the address that <code>pairwright view</code> "
    "printed: it holds the token. If you just did, <a href='/'>go on</a>."
)


@dataclass(frozen=True)
class Keys:
    """Secrets of one start."""

    port: int
    entry: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    """In the address that is printed."""
    once: set[str] = field(default_factory=lambda: {secrets.token_urlsafe(32)})
    """In the address that a browser is started with, which others on this machine see in its command line: used up by
    the first who comes with it."""
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    page: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    """In the pages: who sends decisions has seen one."""

    @property
    def name(self) -> str:
        """Return the cookie's name: cookies of one host are shared by all of its ports."""
        return f"pairwright-{self.port}"

    @property
    def url(self) -> str:
        """Return the address to open."""
        return f"http://{HOST}:{self.port}/?token={self.entry}"

    @property
    def url_once(self) -> str:
        """Return the address to start a browser with."""
        return f"http://{HOST}:{self.port}/?token={next(iter(self.once))}"


def listen(port: int) -> socket.socket:
    """Return a socket that listens on loopback; port 0: any that is free."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"--port {port}: cannot be listened to: {error.strerror or error}. Give another; 0 takes a free one"
        ) from error
    return listener


def serve(pages: BrowsePages, keys: Keys, listener: socket.socket) -> None:
    """Serve until Ctrl-C, which may be raised as ``KeyboardInterrupt``."""
    config = uvicorn.Config(
        Guard(make_app(pages, keys), keys),
        log_config=None,
        log_level="warning",
        access_log=False,  # addresses hold the token
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=2,
    )
    uvicorn.Server(config).run(sockets=[listener])


def make_app(pages: BrowsePages, keys: Keys) -> Starlette:
    """Return the application behind the guard."""

    def page(request: Request) -> Response:
        render = pages.thresholds if request.url.path == "/thresholds" else pages.page
        text, status = render(request.query_params, keys.page)
        return HTMLResponse(text.encode("utf-8", "replace"), status)

    def overview(request: Request) -> Response:
        try:
            return _file(pages.overview(request.path_params["name"]))
        except NotMadeYetError:
            return HTMLResponse(WAIT, headers={"Refresh": "1"})
        except StoreError as error:
            return PlainTextResponse(f"{error}\n", 500)

    def serving(find: Callable[[str], Path | None]) -> Callable[[Request], Response]:
        return lambda request: _file(find(request.path_params["name"]))

    app = Starlette(
        routes=[
            Route("/", page, methods=["GET"]),
            Route("/thresholds", page, methods=["GET"]),
            Route("/index.html", lambda _: RedirectResponse("/", 303), methods=["GET"]),
            Route("/favicon.ico", lambda _: Response(status_code=204), methods=["GET"]),
            Route("/decisions", partial(_take, pages), methods=["POST"]),
            Route("/images/{name}", serving(pages.picture), methods=["GET"]),
            Route("/overview/{name:path}", overview, methods=["GET"]),
            Route("/{name}", serving(FILES.get), methods=["GET"]),
        ]
    )
    app.router.redirect_slashes = False
    return app


def _file(path: Path | None) -> Response:
    if path is None or not path.is_file():
        return PlainTextResponse("There is nothing of this name.\n", 404)
    return FileResponse(path)


async def _take(pages: BrowsePages, request: Request) -> Response:
    """Store the decisions that a page sends."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BYTES:
            return _fault(413, f"more than {MOST_BYTES >> 20} MB at once")
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        return _fault(415, "decisions come as application/json")
    try:
        decisions = parse_decisions(bytes(body))
    except ValueError as error:
        return _fault(400, str(error))
    try:
        apart = await run_in_threadpool(pages.decide, decisions)
    except StoreError as error:
        return _fault(500, str(error))
    refused = len(apart.unknown) + len(apart.wordless)
    if refused and not apart.known:
        return _fault(400, "about rows that this version has not, or about texts that the row has not")
    return JSONResponse({"stored": len(apart.known), "refused": refused})


def _fault(status: int, why: str) -> Response:
    return JSONResponse({"error": why}, status)


@dataclass(frozen=True)
class Guard:
    """Guard that lets nobody pass but who has the token, and nothing without the headers that protect them."""

    app: Starlette
    keys: Keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI)."""

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.lower().encode(), value.encode()) for name, value in ALWAYS.items()]
                message = {**message, "headers": [*message["headers"], *own]}
            await send(message)

        if scope["type"] != "http":
            return
        answer = self._refuse(Request(scope))
        await (answer or self.app)(scope, receive, send_safely)

    def _refuse(self, request: Request) -> Response | None:
        """Return an answer that ends the request; ``None``: it may pass."""
        if request.headers.getlist("host") not in [[f"{name}:{self.keys.port}"] for name in (HOST, "localhost")]:
            return PlainTextResponse("This server has another name.\n", 421)
        if request.url.path == "/" and "token" in request.query_params and request.method == "GET":
            return self._enter(request)
        if not _same(request.cookies.get(self.keys.name, ""), self.keys.cookie):
            return HTMLResponse(LOCKED_OUT, 401)
        if request.method not in ("GET", "HEAD"):
            is_ours = request.headers.get("origin") == f"http://{request.headers['host']}"
            if not is_ours or not _same(request.headers.get(HEADER, ""), self.keys.page):
                return _fault(403, "this page is of another start of `pairwright view`: load it again")
        return None

    def _enter(self, request: Request) -> Response:
        """Give the cookie for the token, and lead to the page without it."""
        given = request.query_params["token"]
        if given in self.keys.once:
            self.keys.once.discard(given)
        elif not _same(given, self.keys.entry):
            return HTMLResponse(LOCKED_OUT, 401)
        rest = urlencode([(name, value) for name, value in request.query_params.multi_items() if name != "token"])
        answer = RedirectResponse(f"/?{rest}" if rest else "/", 303)
        answer.set_cookie(self.keys.name, self.keys.cookie, httponly=True, samesite="strict", path="/")
        return answer


def _same(given: str, wanted: str) -> bool:
    return secrets.compare_digest(given.encode("utf-8", "replace"), wanted.encode())
