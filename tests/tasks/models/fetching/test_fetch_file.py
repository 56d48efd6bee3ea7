"""Large files from a real server on loopback: broken off and taken up, other versions, lies, redirects, limits."""

import json
import logging
import random
import re
import shutil
import threading
from dataclasses import replace

import pytest

from pairwright.tasks.models.fetching.fetch_file import FetchError, Limits, check_address, fetch_file, may_ask
from pairwright.tasks.store.addresses import RefusedAddressError, parse_address
from tests.fixtures.certificates import write_certificate
from tests.fixtures.file_server import Fault, serving_files

DATA = random.Random(1).randbytes(300_000)
OTHER = random.Random(2).randbytes(300_000)
LIMITS = Limits(pause_s=0.001, least_bytes=1000, connect_s=5, silence_s=5)


@pytest.fixture
def web():
    with serving_files() as running:
        yield running


@pytest.fixture
def part(tmp_path):
    return tmp_path / "a.pth.part"


def cut(size, **options):
    return Fault(cut=size, **options)


def refused(url, part, limits=LIMITS, **options):
    with pytest.raises(FetchError) as caught:
        fetch_file(url, part, limits=limits, **options)
    return str(caught.value)


def test_a_file_comes_whole_and_the_request_says_little(web, part):
    fetch_file(web.put("/a.pth", DATA), part, limits=LIMITS)
    assert part.read_bytes() == DATA
    ((_, _, headers),) = web.asked
    assert {name: headers[name] for name in ("User-Agent", "Accept-Encoding")} == {
        "User-Agent": "pairwright",
        "Accept-Encoding": "identity",
    }
    assert not {"Authorization", "Cookie", "Range"} & set(headers)


def test_what_breaks_off_is_taken_up_where_it_ended(web, part):
    url = web.put("/a.pth", DATA)
    web.next_answers = [cut(100_000), cut(50_000)]
    fetch_file(url, part, limits=LIMITS)
    assert part.read_bytes() == DATA
    assert web.gets == [("/a.pth", None), ("/a.pth", "bytes=100000-"), ("/a.pth", "bytes=150000-")]
    assert {headers.get("If-Range") for _, _, headers in web.asked[1:]} == {web.etags["/a.pth"]}


def test_a_later_call_takes_up_what_an_earlier_one_left(web, part):
    url = web.put("/a.pth", DATA)
    web.next_answers = [cut(100_000)]
    refused(url, part, replace(LIMITS, tries=1))
    assert part.stat().st_size == 100_000
    fetch_file(url, part, limits=LIMITS)
    assert part.read_bytes() == DATA
    assert web.gets[1] == ("/a.pth", "bytes=100000-")


def test_a_part_that_is_whole_already_is_not_fetched_again(web, part):
    url = web.put("/a.pth", DATA)
    for _ in range(2):
        fetch_file(url, part, limits=LIMITS)
    assert part.read_bytes() == DATA
    assert web.gets[1] == ("/a.pth", f"bytes={len(DATA)}-")


@pytest.mark.parametrize("polite", [True, False])
def test_parts_of_two_versions_are_never_joined(web, part, polite):
    url = web.put("/a.pth", DATA)
    web.next_answers = [cut(100_000)]
    refused(url, part, replace(LIMITS, tries=1))
    web.put("/a.pth", OTHER)
    if not polite:  # it sends the rest of the new version, whatever If-Range says
        rest = {"Content-Range": f"bytes 100000-{len(OTHER) - 1}/{len(OTHER)}"}
        web.next_answers = [Fault(status=206, headers=rest, content=OTHER[100_000:])]
    fetch_file(url, part, limits=LIMITS)
    assert part.read_bytes() == OTHER


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Range": f"bytes 99999-{len(DATA) - 1}/{len(DATA)}"},
        {"Content-Range": f"bytes 100000-{len(DATA)}/{len(DATA) + 1}"},
        {"Content-Range": f"bytes 100000-{len(DATA) - 1}/*"},
        {"Content-Range": None},
        {"ETag": None},
    ],
)
def test_a_rest_that_may_be_of_something_else_is_not_taken(web, part, headers):
    url = web.put("/a.pth", DATA)
    web.next_answers = [cut(100_000), Fault(headers=headers)]
    fetch_file(url, part, limits=LIMITS)
    assert part.read_bytes() == DATA
    assert web.gets[2] == ("/a.pth", None)


@pytest.mark.parametrize("etag", [None, 'W/"weak"'])
def test_without_a_strong_etag_it_starts_over(web, part, etag):
    url = web.put("/a.pth", DATA, etag=etag)
    web.next_answers = [cut(100_000)]
    fetch_file(url, part, limits=LIMITS)
    assert part.read_bytes() == DATA
    assert web.gets == [("/a.pth", None)] * 2


def test_a_server_without_ranges_starts_over(web, part):
    url = web.put("/a.pth", DATA)
    web.next_answers = [cut(100_000), Fault(ignore_range=True)]
    fetch_file(url, part, limits=LIMITS)
    assert part.read_bytes() == DATA


def test_a_part_of_another_address_or_with_a_damaged_note_is_not_taken_up(web, part):
    note = part.with_name("a.pth.part.json")
    for text in ("{", "[]", '{"url": 1}', json.dumps({"url": "http://127.0.0.1/b", "etag": '"x"', "total": 9})):
        part.write_bytes(OTHER[:5000])
        note.write_text(text)
        fetch_file(web.put("/a.pth", DATA), part, limits=LIMITS)
        assert part.read_bytes() == DATA
    part.write_bytes(OTHER[:5000])
    note.unlink()
    fetch_file(web.put("/a.pth", DATA), part, limits=LIMITS)
    assert part.read_bytes() == DATA
    assert {asked for _, asked in web.gets} == {None}


def test_a_part_that_is_longer_than_the_file_is_started_over(web, part):
    url = web.put("/a.pth", DATA)
    fetch_file(url, part, limits=LIMITS)
    part.write_bytes(DATA + b"more")
    fetch_file(url, part, limits=LIMITS)
    assert part.read_bytes() == DATA


@pytest.mark.parametrize("status", [500, 502, 503, 429, 408])
def test_a_busy_server_is_asked_again(web, part, caplog, status):
    caplog.set_level(logging.INFO)
    url = web.put("/a.pth", DATA)
    web.next_answers = [Fault(status=status)] * 3
    fetch_file(url, part, limits=LIMITS)
    assert part.read_bytes() == DATA
    assert re.search(rf"a.pth: .*HTTP {status}; .*\b0\.001 s", caplog.text)
    assert "a.pth: 0.3 MB of 0.3 MB" in caplog.text


def test_tries_are_counted_from_the_last_that_brought_something(web, part):
    url = web.put("/a.pth", DATA)
    web.next_answers = [Fault(status=503), cut(1000), Fault(status=503), cut(1000), Fault(status=503)]
    fetch_file(url, part, limits=replace(LIMITS, tries=3))
    assert part.read_bytes() == DATA
    web.next_answers = [Fault(status=503)] * 3
    part.unlink()
    assert refused(url, part, replace(LIMITS, tries=3)) == "the server answers HTTP 503; gave up after 3 tries"


def test_a_server_that_changes_the_file_each_time_is_given_up(web, part):
    url = web.put("/a.pth", DATA)
    web.next_answers = [fault for n in range(20) for fault in (cut(100_000), Fault(headers={"ETag": f'"{n}"'}))]
    assert "6 tries" in refused(url, part)
    assert len(web.asked) < 20


def test_retry_after_is_heeded(web, part, monkeypatch):
    pauses = []
    monkeypatch.setattr("pairwright.tasks.models.fetching.fetch_file.time.sleep", pauses.append)
    url = web.put("/a.pth", DATA)
    web.next_answers = [Fault(status=503, headers={"Retry-After": text}) for text in ("7", "soon", "999999")]
    fetch_file(url, part, limits=LIMITS)
    assert pauses == [7.0, 0.002, 120.0]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault(status=404), "HTTP 404"),
        (Fault(status=204), "HTTP 204"),
        (Fault(headers={"Content-Type": "Text/HTML; charset=utf-8"}), "(text/html)"),
        (Fault(headers={"Content-Encoding": "gzip"}), "(gzip)"),
        (Fault(headers={"Content-Length": "200001"}), "200001 bytes"),
        (Fault(headers={"Content-Length": None}), "200000 bytes"),
        (Fault(headers={"Content-Length": "9" * 18}), "200000"),
    ],
)
def test_what_is_no_such_file_is_refused_at_once(web, part, fault, words):
    url = web.put("/a.pth", DATA)
    web.next_answers = [fault]
    assert words in refused(url, part, replace(LIMITS, max_bytes=200_000))
    assert len(web.asked) == 1
    assert not part.exists()


def test_a_length_that_promises_more_than_comes_is_no_file(web, part):
    url = web.put("/a.pth", DATA)
    web.next_answers = [Fault(headers={"Content-Length": "400000"})] * 6
    assert "6 tries" in refused(url, part)


def test_a_length_that_promises_less_than_comes_is_what_counts(web, part):
    url = web.put("/a.pth", DATA)
    web.next_answers = [Fault(headers={"Content-Length": "100000"})]
    fetch_file(url, part, limits=LIMITS)
    assert part.read_bytes() == DATA[:100_000]  # its hash tells


def test_an_empty_file_is_no_file(web, part):
    assert "gave up" in refused(web.put("/a.pth", b""), part)


def test_silence_and_drips_count_as_lost(web, part):
    url = web.put("/a.pth", DATA)
    stall = threading.Event()
    web.next_answers = [cut(100_000, stall=stall)]
    fetch_file(url, part, limits=replace(LIMITS, silence_s=0.2))
    stall.set()
    assert part.read_bytes() == DATA
    assert web.gets[1] == ("/a.pth", "bytes=100000-")


def test_a_server_that_drips_is_left(web, part, monkeypatch):
    clock = iter(range(0, 10_000, 40))
    monkeypatch.setattr("pairwright.tasks.models.fetching.fetch_file.time.monotonic", lambda: float(next(clock)))
    url = web.put("/a.pth", DATA)
    limits = replace(LIMITS, silence_s=60, least_bytes=len(DATA) + 1, tries=1)
    assert "bytes came in 60 s" in refused(url, part, limits)


def test_a_full_disk_is_told_before_anything_comes(web, part, monkeypatch):
    url = web.put("/a.pth", DATA)
    web.next_answers = [Fault(headers={"Content-Length": str(10**18)})]
    words = refused(url, part, replace(LIMITS, max_bytes=10**19))
    assert f"{part.parent} has " in words
    assert "1000000000.0 GB are still to come" in words
    usage = shutil.disk_usage(part.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=100_000_000 + len(DATA) - 1))
    assert "0.1 GB free" in refused(url, part)


def test_a_place_that_cannot_be_written_is_told(web, tmp_path):
    assert "cannot be written: No such file" in refused(web.put("/a.pth", DATA), tmp_path / "nowhere" / "a.part")


def test_nobody_there_is_told(part):
    with serving_files() as web:
        url = web.put("/a.pth", DATA)
    assert "the connection was lost (ConnectError" in refused(url, part, replace(LIMITS, tries=2))


def test_a_redirect_is_followed_and_taken_up_through_it(web, part):
    web.put("/b.pth", DATA)
    web.redirects["/a.pth"] = "/b.pth"
    web.next_answers = [Fault(), cut(100_000)]
    fetch_file(f"{web.address}/a.pth", part, limits=LIMITS)
    assert part.read_bytes() == DATA
    assert web.gets[-1] == ("/b.pth", "bytes=100000-")


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("file:///etc/passwd", "http address"),
        ("ftp://127.0.0.1/a", "http address"),
        ("http://example.org/a.pth", "https address"),
        ("https://169.254.169.254/latest/meta-data", "private address"),
        ("https://user:word@127.0.0.1/a", "credentials in the address"),
        ("http://[::1", "damaged address"),
        ("/a.pth", "10 redirects"),
    ],
)
def test_a_redirect_that_leads_astray_is_not_followed(web, part, location, words):
    web.redirects["/a.pth"] = location
    assert words in refused(f"{web.address}/a.pth", part)


PLACES = {"public.example": "93.184.216.34", "private.example": "10.0.0.5", "here.example": "127.0.0.1"}
PLACES |= {"odd.example": "169.254.1.1", "six.example": "2606:2800:220:1::1", "mapped.example": "::ffff:10.0.0.5"}


@pytest.mark.parametrize(
    ("address", "first", "words"),
    [
        ("https://public.example/", "https://public.example/", ""),
        ("https://six.example/", "https://public.example/", ""),
        ("https://private.example/", "https://private.example/", ""),
        ("https://public.example/", "https://private.example/", ""),
        ("http://here.example/", "http://here.example/", ""),
        ("https://unknown.example/", "https://public.example/", ""),  # a proxy may know it
        ("http://public.example/", "http://public.example/", "https address"),
        ("http://private.example/", "http://here.example/", "https address"),
        ("https://private.example/", "https://public.example/", "private address"),
        ("https://mapped.example/", "https://public.example/", "private address"),
        ("https://here.example/", "https://private.example/", "private address"),
        ("http://here.example/", "https://public.example/", "private address"),
        ("https://odd.example/", "https://here.example/", "private address"),
    ],
)
def test_no_redirect_leads_nearer_to_this_machine(address, first, words):
    def resolve(host):
        return [PLACES[host]] if host in PLACES else []

    try:
        check_address(parse_address(address), parse_address(first), resolve)
        found = ""
    except RefusedAddressError as refused:
        found = refused.reason
    assert (bool(found), words in found) == (bool(words), True)


def test_plain_http_is_for_loopback_only():
    assert may_ask("http://127.0.0.1:1/a")
    assert may_ask("https://192.168.0.1/a")
    assert not may_ask("http://192.168.0.1/a")
    assert not may_ask("file:///etc/passwd")


def test_a_token_goes_to_the_first_host_only(web, part):
    with serving_files() as other:
        other.put("/b.pth", DATA)
        web.redirects["/a.pth"] = f"{other.address}/b.pth"
        fetch_file(f"{web.address}/a.pth", part, limits=LIMITS, token="secret")
        assert web.asked[0][2]["Authorization"] == "Bearer secret"
        assert "Authorization" not in other.asked[0][2]


def test_certificates_are_checked(tmp_path, part, monkeypatch):
    shows, trusted = write_certificate(tmp_path)
    with serving_files(shows) as web:
        url = web.put("/a.pth", DATA)
        assert "certificate is not trusted here" in refused(url, part)
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        fetch_file(url, part, limits=LIMITS)
    assert part.read_bytes() == DATA
