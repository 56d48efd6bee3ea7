"""Serve the pages of a dataset to the user of this machine only.

Listens on 127.0.0.1. The printed token is exchanged for a cookie; requests without it get 401.
Pages of other sites cannot use it (SameSite, Origin, a header that only our pages know, no frames),
nor reach this server under another name (Host). No part of an address is used as a path: files are
looked up by name.
"""

import contextlib
import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import uvicorn
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pairwright.schemas.decisions import say_errors
from pairwright.schemas.errors import ConfigError, StoreError
from pairwright.tasks.report.browse_pages import FILES, BrowsePages
from pairwright.tasks.report.explore_pages import NotMadeYetError, Workshop
from pairwright.tasks.store.decision_table import KeptFilter, parse_decisions

HOST = "127.0.0.1"
HEADER = "x-pairwright-token"
POLICY = (
    "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",  # no browser keeps a picture that may have to be removed
}
WAIT = (
    "<!doctype html><meta charset=utf-8><meta name=color-scheme content='light dark'>"
    "<title>Pairwright</title><p>This page is being made; it takes about ten seconds for "
    "5,000 rows and then appears here. <a href='/'>Back</a>"
)
LOCKED_OUT = (
    "<!doctype html><meta charset=utf-8><title>Pairwright</title><p>Open the address that "
    "<code>pairwright view</code> printed: it contains the token. "
    "If you just did, <a href='/'>continue</a>."
)


def _new_token() -> str:
    return secrets.token_urlsafe(32)


@dataclass(frozen=True)
class Keys:
    """Secrets of one start."""

    port: int
    entry: str = field(default_factory=_new_token)  # token of the printed address
    once: set[str] = field(default_factory=lambda: {_new_token()})
    """Token of the address that a browser is started with. Other users see it in the command line:
    it is valid once."""
    cookie: str = field(default_factory=_new_token)
    page: str = field(default_factory=_new_token)  # token of the pages, needed to send decisions

    @property
    def cookie_name(self) -> str:
        """Return the cookie's name, with the port: ports of one host share cookies."""
        return f"pairwright-{self.port}"

    def page_url(self, token: str) -> str:
        """Return the address to open with a token.

        The token is ``entry``, or one of ``once`` to start a browser with.
        """
        return f"http://{HOST}:{self.port}/?token={token}"


def listen(port: int) -> socket.socket:
    """Return a socket that listens on loopback; port 0: any free one."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"--port {port}: cannot listen: {error.strerror or error}. "
            "Choose another port; 0 takes a free one"
        ) from error
    return listener


class Opening:
    """Application behind the guard.

    Until its pages are made in the background, it answers with a waiting page.
    """

    def __init__(
        self,
        make: Callable[[Workshop], BrowsePages],
        keys: Keys,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Make the pages in the background; ``check`` raises where they may not be shown."""
        self.workshop = Workshop()
        self._check = check
        self._make_pages = make
        self._keys = keys
        self._open()

    def _make(self) -> Starlette:
        return make_app(self._make_pages(self.workshop), self._keys)

    def _open(self) -> Starlette | None:
        with contextlib.suppress(NotMadeYetError):
            return self.workshop.result("the search table", self._make)
        return None

    async def __call__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Answer a request (ASGI)."""
        try:
            self._check()
            answer = self._open() or HTMLResponse(WAIT, headers={"Refresh": "1"})
        except StoreError as error:
            answer = PlainTextResponse(f"{error}\n", 500)
        await answer(scope, receive, send)


def serve_pages(
    opening: Opening,
    keys: Keys,
    listener: socket.socket,
) -> None:
    """Serve until Ctrl-C, which may be raised as ``KeyboardInterrupt``."""
    config = uvicorn.Config(
        Guard(opening, keys),
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
    renderers = {
        "/": pages.page,
        "/thresholds": pages.thresholds,
        "/explore": pages.explore.grid,
        "/map": pages.map,
    }

    def serve_page(request: Request) -> Response:
        render = renderers[request.url.path]
        text, status = render(request.query_params, keys.page)
        return HTMLResponse(text.encode("utf-8", "replace"), status)

    async def store_decisions(request: Request) -> Response:
        decisions = parse_decisions(await request.body())
        result = await run_in_threadpool(pages.decide, decisions)
        refused = len(result.unknown) + len(result.wordless)
        if refused and not result.known:
            raise ValueError(
                "the decisions are about rows or texts that this version does not have"
            )
        return JSONResponse({"stored": len(result.known), "refused": refused})

    async def save_filter(request: Request) -> Response:
        saved = KeptFilter.model_validate_json(await request.body())
        await run_in_threadpool(pages.keep_filter, saved)
        return JSONResponse({"kept": True})

    app = Starlette(
        routes=[
            *(Route(path, serve_page, methods=["GET"]) for path in renderers),
            Route("/index.html", lambda _: RedirectResponse("/", 303), methods=["GET"]),
            Route("/favicon.ico", lambda _: Response(status_code=204), methods=["GET"]),
            Route("/decisions", store_decisions, methods=["POST"]),
            Route("/filters", save_filter, methods=["POST"]),
            Route("/thumbs/{name}", _file_endpoint(pages.explore.thumbnail), methods=["GET"]),
            Route("/images/{name}", _file_endpoint(pages.find_picture), methods=["GET"]),
            Route("/{name}", _file_endpoint(FILES.get), methods=["GET"]),
        ],
        exception_handlers={
            NotMadeYetError: _answer_error,
            StoreError: _answer_error,
            ValueError: _answer_error,
        },
    )
    app.router.redirect_slashes = False
    return app


def _file_endpoint(find: Callable[[str], Path | None]) -> Callable[[Request], Response]:
    """Return the endpoint of the files that ``find`` returns by name."""

    def serve_file(request: Request) -> Response:
        path = find(request.path_params["name"])
        if path and path.is_file():
            return FileResponse(path)
        return PlainTextResponse("Not found.\n", 404)

    return serve_file


def _answer_error(request: Request, error: Exception) -> Response:
    """Return the response to a request that raised an error.

    It is a waiting page, text for a page, or JSON for a script.
    """
    if isinstance(error, NotMadeYetError):
        return HTMLResponse(WAIT, headers={"Refresh": "1"})
    why = say_errors(error) if isinstance(error, ValidationError) else str(error)
    if request.method == "GET":
        return PlainTextResponse(f"{why}\n", 500)
    status = 400 if isinstance(error, ValueError) else 500
    return _json_error(status, why)


def _json_error(status: int, why: str) -> Response:
    return JSONResponse({"error": why}, status)


@dataclass(frozen=True)
class Guard:
    """Guard that rejects requests without the token, and adds security headers to all answers."""

    app: ASGIApp
    keys: Keys

    async def __call__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Answer a request (ASGI)."""

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message["headers"]]
                for name, value in SECURITY_HEADERS.items():
                    headers.append((name.lower().encode(), value.encode()))
                message = {**message, "headers": headers}
            await send(message)

        if scope["type"] != "http":
            return
        answer = self._refuse(Request(scope))
        await (answer or self.app)(scope, receive, send_safely)

    def _refuse(self, request: Request) -> Response | None:
        """Return the response to a rejected request; ``None``: it may pass."""
        hosts = [[f"{name}:{self.keys.port}"] for name in (HOST, "localhost")]
        if request.headers.getlist("host") not in hosts:
            return PlainTextResponse("Wrong host name: use the printed address.\n", 421)
        if request.url.path == "/" and "token" in request.query_params and request.method == "GET":
            return self._enter(request)
        cookie = request.cookies.get(self.keys.cookie_name, "")
        if not _is_equal(cookie, self.keys.cookie):
            return HTMLResponse(LOCKED_OUT, 401)
        if request.method not in ("GET", "HEAD"):
            is_ours = request.headers.get("origin") == f"http://{request.headers['host']}"
            if not is_ours or not _is_equal(request.headers.get(HEADER, ""), self.keys.page):
                return _json_error(403, "the server was restarted: reload this page")
        return None

    def _enter(self, request: Request) -> Response:
        """Exchange the token for the cookie, and redirect to the page without it."""
        token = request.query_params["token"]
        if token in self.keys.once:
            self.keys.once.discard(token)
        elif not _is_equal(token, self.keys.entry):
            return HTMLResponse(LOCKED_OUT, 401)
        parameters = request.query_params.multi_items()
        query = urlencode([(name, value) for name, value in parameters if name != "token"])
        answer = RedirectResponse(f"/?{query}" if query else "/", 303)
        answer.set_cookie(
            self.keys.cookie_name,
            self.keys.cookie,
            httponly=True,
            samesite="strict",
            path="/",
        )
        return answer


def _is_equal(token: str, expected: str) -> bool:
    return secrets.compare_digest(token.encode("utf-8", "replace"), expected.encode())
