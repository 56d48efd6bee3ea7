"""Downloads from real servers on loopback: whom they reach, and the limits of size and time."""

import datetime
import socket
import ssl
import threading
import time
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pairwright.tasks.sources.web import download as module
from pairwright.tasks.sources.web.download import (
    PUBLIC,
    REDIRECTS,
    TRIES,
    DownloadError,
    Limits,
    download,
    resolve_host,
)
from tests.fixtures.web import LOOPBACK, serving

LIMITS = Limits(max_bytes=100_000, timeout_s=10)


@pytest.fixture
def web():
    with serving() as running:
        yield running


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(module, "PAUSE_S", 0.01)


def refused(url, limits=LIMITS, network=LOOPBACK):
    with pytest.raises(DownloadError) as caught:
        download(url, limits, network)
    return caught.value.reason, caught.value.final


def test_a_file_comes_whole_and_the_request_says_little(web):
    web.serve("/a.jpg?x=1", b"data" * 1000)
    assert download(web.url("/a.jpg?x=1"), LIMITS, LOOPBACK) == b"data" * 1000
    (headers,) = web.headers
    assert headers == {
        "Host": f"public.example:{web.port}",
        "User-Agent": "pairwright",
        "Accept": "image/*",
        "Accept-Encoding": "identity",
        "Connection": "close",
    }


def test_loopback_is_refused_by_default_under_every_name_and_nothing_is_asked(web):
    web.serve("/", b"secret")
    hosts = ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.0.0.1", "0177.0.0.1", "0", "[::1]", "[::]"]
    hosts += ["[::ffff:127.0.0.1]", "[64:ff9b::127.0.0.1]"]
    for host in hosts:
        reason, final = refused(web.url("/", host), network=PUBLIC)
        assert (reason, final) in {("not a public address", True), ("host not found", False)}, host
    assert refused(web.url("/", "127.0.0.1"), network=PUBLIC) == ("not a public address", True)
    assert refused(web.url("/", "[::ffff:127.0.0.1]"), network=PUBLIC) == ("not a public address", True)
    assert web.asked == []


def test_a_host_with_one_private_address_is_refused(web):
    assert refused(web.url("/", "both.example")) == ("not a public address", True)
    assert web.asked == []


def test_redirects_are_followed_each_checked(web):
    with serving("127.0.0.2", web.port) as private:
        private.serve("/secret", b"secret")
        web.serve("/good", status=302, Location="/next")
        web.serve("/next", status=308, Location=web.url("/file"))
        web.serve("/file", b"data", Set_Cookie="a=b")
        assert download(web.url("/good"), LIMITS, LOOPBACK) == b"data"
        assert "Cookie" not in web.headers[-1]
        for location in (private.url("/secret", "private.example"), private.url("/secret", "127.0.0.2")):
            web.serve("/bad", status=302, Location=location)
            assert refused(web.url("/bad")) == ("not a public address", True)
        assert private.asked == []


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("file:///etc/passwd", "not an http address"),
        ("http://user:pass@public.example/", "credentials in the address"),
        ("http://[::1", "damaged address"),
        ("", "redirect leads nowhere"),
        (None, "redirect leads nowhere"),
        ("/", "too many redirects"),
    ],
)
def test_redirects_that_lead_nowhere(web, location, reason):
    web.serve("/", status=301, Location=location)
    assert refused(web.url("/")) == (reason, True)
    assert len(web.asked) == (REDIRECTS + 1 if location == "/" else 1)


def test_a_name_is_resolved_once_and_the_connection_goes_to_that_very_address(web):
    """A name that changes its address between check and connection must not be able to lead elsewhere."""
    answers = [["127.0.0.1"], ["127.0.0.2"], ["127.0.0.2"]]
    asked = []

    def rebinding(host, port, timeout_s):
        asked.append(host)
        return answers[len(asked) - 1]

    with serving("127.0.0.2", web.port) as private:
        web.serve("/", b"data")
        private.serve("/", b"secret")
        assert download(web.url("/"), LIMITS, replace(LOOPBACK, resolve=rebinding)) == b"data"
        assert asked == ["public.example"]
        # A redirect to the same name resolves, and checks, again.
        web.serve("/", status=302, Location="/next")
        asked.clear()
        assert refused(web.url("/"), network=replace(LOOPBACK, resolve=rebinding)) == ("not a public address", True)
        assert (asked, private.asked) == (["public.example"] * 2, [])


def test_the_next_address_is_tried_where_one_does_not_answer(web):
    web.serve("/", b"data")
    both = replace(LOOPBACK, resolve=lambda *_: ["127.0.0.3", "127.0.0.1"], is_allowed=lambda _: True)
    assert download(web.url("/"), LIMITS, both) == b"data"


@pytest.mark.parametrize(
    ("status", "reason", "final"),
    [
        (404, "not found", True),
        (410, "not found", True),
        (401, "server refuses", True),
        (403, "server refuses", True),
        (204, "server refuses", True),
        (206, "server refuses", True),
        (304, "server refuses", True),
        (429, "server refuses", False),
        (500, "server error", False),
        (503, "server error", False),
    ],
)
def test_other_answers(web, status, reason, final):
    web.serve("/", status=status)
    assert refused(web.url("/")) == (reason, final)
    assert len(web.asked) == (1 if final else TRIES)


def test_a_server_that_recovers_is_asked_again(web):
    web.serve("/", status=503)
    busy = web.routes["/"]

    def recover(handler):
        busy(handler)
        web.serve("/", b"data")

    web.routes["/"] = recover
    assert download(web.url("/"), LIMITS, LOOPBACK) == b"data"


def test_the_size_limit_holds_with_and_without_a_length(web):
    def endless(handler):
        handler.send_response(200)
        handler.end_headers()
        while True:
            handler.wfile.write(bytes(1 << 16))

    web.serve("/said", b"x" * 100_001)
    web.serve("/just", b"x" * 100_000)
    web.routes["/endless"] = endless
    assert len(download(web.url("/just"), LIMITS, LOOPBACK)) == 100_000
    assert refused(web.url("/said")) == ("file too large", True)
    assert refused(web.url("/endless")) == ("file too large", True)


def drip_headers(handler):
    for number in range(1000):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n" if not number else f"X-{number}: y\r\n".encode())
        handler.wfile.flush()
        time.sleep(0.02)


def drip_body(handler):
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    for _ in range(1000):
        handler.wfile.write(b"x")
        handler.wfile.flush()
        time.sleep(0.02)


def keep_promising(handler):
    for _ in range(1000):
        handler.wfile.write(b"HTTP/1.1 102 Processing\r\n\r\n")
        handler.wfile.flush()
        time.sleep(0.02)


def say_nothing(handler):
    time.sleep(2)


def redirect_slowly(handler):
    time.sleep(0.15)
    handler.send_response(302)
    handler.send_header("Location", "/")
    handler.send_header("Content-Length", "0")
    handler.end_headers()


@pytest.mark.parametrize("answer", [drip_headers, drip_body, keep_promising, say_nothing, redirect_slowly])
def test_no_server_takes_longer_than_the_limit_however_it_drips(web, answer):
    web.routes["/"] = answer
    start = time.monotonic()
    assert refused(web.url("/"), replace(LIMITS, timeout_s=0.4)) == ("time limit", False)
    assert 0.3 < time.monotonic() - start < 1.5


def test_a_machine_that_accepts_no_connection_takes_no_longer_than_the_limit():
    with socket.socket() as full, socket.socket() as first:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        first.connect(full.getsockname())
        start = time.monotonic()
        url = f"http://public.example:{full.getsockname()[1]}/"
        assert refused(url, replace(LIMITS, timeout_s=0.4)) == ("time limit", False)
        assert time.monotonic() - start < 1.5


def test_a_resolver_that_hangs_takes_no_longer_than_the_limit(monkeypatch):
    release = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: release.wait(20) and [])
    start = time.monotonic()
    slow = replace(LOOPBACK, resolve=resolve_host)
    assert refused("http://public.example/", replace(LIMITS, timeout_s=0.3), slow) == ("time limit", False)
    assert time.monotonic() - start < 1.5
    release.set()


def test_names_without_an_address():
    assert refused("http://nowhere.example/") == ("host not found", False)
    assert refused("http://nowhere.example/", network=replace(LOOPBACK, resolve=lambda *_: [])) == (
        "host not found",
        False,
    )
    with pytest.raises(OSError, match=r"."):
        resolve_host("nowhere.invalid", 80, 10)
    assert resolve_host("127.0.0.1", 80, 10) == ["127.0.0.1"]


def test_connections_that_fail(web):
    def stop_short(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(b"x")
        handler.close_connection = True

    def babble(handler):
        handler.wfile.write(b"\x00\x01 no http\r\n\r\n")
        handler.close_connection = True

    web.routes |= {"/short": stop_short, "/babble": babble}
    assert refused(web.url("/short")) == ("download broke off", False)
    assert refused(web.url("/babble")) == ("download broke off", False)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        assert refused(f"http://public.example:{closed.getsockname()[1]}/") == ("no connection", False)


def test_servers_may_opt_out(web):
    web.serve("/", b"data", X_Robots_Tag="otherbot: noindex, NoAI")
    assert refused(web.url("/")) == ("server opts out", True)
    web.serve("/", b"data", X_Robots_Tag="noindex")
    assert download(web.url("/"), LIMITS, LOOPBACK) == b"data"


def certificate(folder, name):
    """Write a self-signed certificate; return a context that shows it and one that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder().subject_name(who).issuer_name(who).public_key(key.public_key()).serial_number(1)
    made = made.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    signed = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    no_password = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, no_password)
    (folder / "both.pem").write_bytes(private + signed)
    shows = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shows.load_cert_chain(folder / "both.pem")
    return shows, ssl.create_default_context(cadata=signed.decode())


def test_certificates_are_checked_for_the_name_though_the_connection_goes_to_an_address(tmp_path):
    shows, trusts = certificate(tmp_path, "public.example")
    names = []
    shows.sni_callback = lambda _, name, __: names.append(name)
    with serving(context=shows) as web:
        web.serve("/", b"data")
        url = web.url("/").replace("http:", "https:")
        trusting = replace(LOOPBACK, trust=lambda: trusts, resolve=lambda *_: ["127.0.0.1"])
        assert download(url, LIMITS, trusting) == b"data"
        assert (names, web.headers[0]["Host"]) == (["public.example"], f"public.example:{web.port}")
        assert refused(url.replace("public", "other"), network=trusting) == ("no connection", False)
        assert refused(url) == ("no connection", False)  # signed by nobody that is trusted
        assert len(web.asked) == 1


def test_a_handshake_that_hangs_takes_no_longer_than_the_limit():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        start = time.monotonic()
        url = f"https://public.example:{silent.getsockname()[1]}/"
        assert refused(url, replace(LIMITS, timeout_s=0.4)) == ("time limit", False)
        assert time.monotonic() - start < 1.5
