"""Lists of addresses in each form, what is refused before anything is fetched, and what becomes of answers."""

import json
import logging
import threading
import time
from dataclasses import replace
from functools import partial

import pytest

from pairwright.schemas.config import ImagesConfig, ReadingConfig, ScenesConfig, SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, Failed, ImageRow, make_key
from pairwright.tasks.sources.layout.annotations import LINE_BYTES
from pairwright.tasks.sources.readers import READERS
from pairwright.tasks.sources.urls import PARALLEL, READER, read_items
from pairwright.tasks.sources.web import download as module
from tests.fixtures.builds import build_through_mining, ok_rows
from tests.fixtures.pictures import picture
from tests.fixtures.web import LOOPBACK, serving


@pytest.fixture
def web():
    with serving() as running:
        yield running


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(module, "PAUSE_S", 0.01)


def config_of(path, *, images=None, download=True, **reading):
    return SourceConfig(
        kind="urls",
        path=str(path),
        images=images or ImagesConfig(),
        reading=ReadingConfig(download=download, **reading),
        scenes=ScenesConfig(),
    )


def written(tmp_path, *lines):
    path = tmp_path / "list.txt"
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines))
    return path


def listed(path, limit=None, **options):
    return list(READER.list_items(config_of(path, **options), limit))


def read(path, **options):
    """Return one row per line, by the line's number."""
    config = config_of(path, **options)
    items = list(READER.list_items(config, None))
    rows = list(read_items(items, config, network=LOOPBACK))
    assert [row.source_key for row in rows] == [item.key for item in items]
    return {item.name.partition(":")[0]: row for item, row in zip(items, rows, strict=True)}


def test_it_is_off_until_it_is_allowed(tmp_path):
    path = written(tmp_path, "http://public.example/a.jpg")
    with pytest.raises(SourceError, match=r"list\.txt.*--set reading\.download=true"):
        listed(path, download=False)
    items = listed(path)
    with pytest.raises(SourceError, match=r"--set reading\.download=true"):
        list(READER.read_items(items, config_of(path, download=False)))


def test_an_address_becomes_an_image(web, tmp_path):
    data = picture()
    web.serve("/a.jpg?key=secret", data, Content_Type="text/html")
    path = written(tmp_path, web.url("/a.jpg?key=secret"))
    row = read(path, images=ImagesConfig(licence="CC0-1.0"))["line 1"]
    assert row == ImageRow(
        key=make_key(data),
        source_key=listed(path)[0].key,
        subject=make_key(data),
        image=data,
        format="png",
        width=32,
        height=24,
        name=web.url("/a.jpg") + "?...",
        source="urls",
        licence="CC0-1.0",
        group="",
    )


def test_every_form_of_a_line(web, tmp_path):
    web.serve("/a", picture())
    url = web.url("/a")
    path = written(
        tmp_path,
        "# a comment",
        f"  {url}#1 \r",
        "",
        json.dumps({"URL": url, "TEXT": "one", "caption": ["two", "one"], "license": "CC-BY-4.0", "group": 3}),
        f"{url}\tbehind\t7",
        f"before\t{url}",
    )
    rows = read(path)
    assert {name: (row.captions, row.licence, row.group) for name, row in rows.items()} == {
        "line 2": ((), "", ""),
        "line 4": (("two", "one"), "CC-BY-4.0", "3"),
        "line 5": (("behind",), "", ""),
        "line 6": (("before",), "", ""),
    }


def test_columns_by_name(web, tmp_path):
    web.serve("/a", picture())
    path = written(tmp_path, "Text\tURL\tLicence\tnote", f"a dog\t{web.url('/a')}\tCC0-1.0\thello", web.url("/a"))
    rows = read(path)
    assert (rows["line 2"].captions, rows["line 2"].licence) == (("a dog",), "CC0-1.0")
    assert rows["line 3"].reason == "not an http address"
    assert read(path, caption_column="Note")["line 2"].captions == ("hello",)
    assert [item.name.partition(":")[0] for item in listed(path, limit=1)] == ["line 2"]


def test_lines_that_may_not_be_fetched_are_dropped_and_not_repeated(web, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    path = written(
        tmp_path,
        "http://user:secret@public.example/a.jpg",
        "file:///etc/passwd",
        "no address",
        '{"url": "http://public.example/',
        '{"caption": "no address"}',
        b"http://public.example/\xff",
        b"{" * 10 + b"[" * 100_000,
        b"x" * (LINE_BYTES + 1),
        json.dumps({"url": web.url("/a"), "caption": "x" * 200_000}),
        json.dumps({"url": "http://user:secret@public.example/a.jpg"}),
        "http://10.0.0.1/a.jpg",
        web.url("/a", "private.example"),
    )
    rows = read(path)
    assert {name: row.reason for name, row in rows.items() if isinstance(row, Dropped)} == {
        "line 1": "credentials in the address",
        "line 2": "not an http address",
        "line 3": "not an http address",
        "line 4": "damaged line",
        "line 5": "not an http address",
        "line 6": "damaged line",
        "line 7": "damaged line",
        "line 8": "line too long",
        "line 9": "too much text",
        "line 10": "credentials in the address",
        "line 11": "not a public address",
        "line 12": "not a public address",
    }
    told = f"{listed(path)} {list(rows.values())} {caplog.text}"
    assert "secret" not in told
    assert web.asked == []


def test_what_becomes_of_answers(web, tmp_path):
    web.serve("/words", b"<html>no image</html>", Content_Type="image/png")
    web.serve("/bomb", picture(size=(300, 300)))
    web.serve("/large", bytes(60_000), Content_Length=None)
    web.serve("/down", status=500)
    web.serve("/cut", picture()[:-200])
    web.routes["/slow"] = lambda handler: time.sleep(3)
    names = ["words", "bomb", "large", "down", "cut", "slow", "none"]
    path = written(tmp_path, *(web.url(f"/{name}") for name in names), "http://nowhere.example/")
    images = ImagesConfig(max_bytes=50_000, max_pixels=50_000)
    web.serve("/bomb", picture(kind="JPEG", size=(300, 300))[:40_000])
    rows = read(path, images=images, timeout_seconds=0.5)
    found = [(type(row), row.reason) for row in rows.values()]
    assert found == [
        (Dropped, "not an image"),
        (Dropped, "too many pixels"),
        (Dropped, "file too large"),
        (Failed, "server error"),
        (Dropped, "truncated image"),
        (Failed, "time limit"),
        (Dropped, "not found"),
        (Failed, "host not found"),
    ]


def test_a_few_are_fetched_at_a_time_and_no_more(web, tmp_path):
    running, most, lock = [0], [0], threading.Lock()
    web.serve("/a", picture())
    answer = web.routes["/a"]

    def count(handler):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.1)
        with lock:
            running[0] -= 1
        answer(handler)

    web.routes |= {f"/{number}": count for number in range(12)}
    rows = read(written(tmp_path, *(web.url(f"/{number}") for number in range(12))))
    assert all(isinstance(row, ImageRow) for row in rows.values())
    assert most[0] == PARALLEL


def test_keys_follow_what_a_line_says_but_not_where_it_stands(tmp_path):
    lines = ["http://public.example/a", "http://public.example/a?b", "http://public.example/a\tcaption"]
    before = [item.key for item in listed(written(tmp_path, *lines))]
    after = [item.key for item in listed(written(tmp_path, "http://public.example/new", *lines))]
    assert after[1:] == before
    assert len(set(after)) == 4
    assert [item.key for item in listed(tmp_path / "list.txt", limit=2)] == after[:2]


@pytest.mark.parametrize("text", [b"", b"\n", b"/home/a.jpg\n" * 200, b"\x89PNG\r\n", b'[{"url": 1}]'])
def test_a_file_that_is_no_list_is_a_source_error(tmp_path, text):
    with pytest.raises(SourceError, match=r"list\.txt: .*https://"):
        listed(written(tmp_path, text))


@pytest.mark.parametrize("place", ["none.txt", "", "s3://bucket/list.txt", "http://public.example/a.jpg"])
def test_a_list_that_is_not_there_is_a_source_error(tmp_path, place):
    with pytest.raises(SourceError, match=place or str(tmp_path)):
        listed(place if "://" in place else tmp_path / place)


def test_splits_are_refused(tmp_path):
    with pytest.raises(SourceError, match=r"reading\.splits"):
        listed(written(tmp_path, "http://public.example/a"), splits=("train",))


def test_a_build_through_mining_fetches_what_is_owed_and_nothing_twice(web, tmp_path, monkeypatch):
    monkeypatch.setitem(READERS, "urls", replace(READER, read_items=partial(read_items, network=LOOPBACK)))
    pictures = [picture(number, size=(64, 64)) for number in range(3)]
    for number, data in enumerate(pictures):
        web.serve(f"/{number}", data)
    web.serve("/down", status=500)
    path = written(tmp_path, *(web.url(f"/{name}") for name in (0, 1, 2, "none", "down")))
    source = f"urls:{path}"
    with pytest.raises(SourceError, match=r"reading\.download=true"):
        build_through_mining(tmp_path / "out", source)
    counts = build_through_mining(tmp_path / "out", source, "reading.download=true")
    found = {name: counts["images"][name] for name in ("in", "ok", "dropped", "failed", "pending")}
    assert found == {"in": 5, "ok": 3, "dropped": 1, "failed": 1, "pending": 0}
    assert counts["images"]["reasons"] == {"not found": 1, "server error": 1}
    assert {row["key"] for row in ok_rows(tmp_path / "out", "images")} == {make_key(data) for data in pictures}
    assert counts["pairs"]["ok"] > 0
    web.asked.clear()
    web.serve("/down", pictures[0])
    counts = build_through_mining(tmp_path / "out", source, "reading.download=true")
    assert web.asked == ["/down"]
    assert counts["images"]["failed"] == 0
    assert build_through_mining(tmp_path / "out", source, "reading.download=true")["shards"] == 0


def test_a_build_without_the_seam_reaches_no_loopback(web, tmp_path):
    web.serve("/", picture())
    path = written(tmp_path, f"http://127.0.0.1:{web.port}/", f"http://[::ffff:127.0.0.1]:{web.port}/")
    counts = build_through_mining(tmp_path / "out", f"urls:{path}", "reading.download=true", until="images")
    assert counts["images"]["reasons"] == {"not a public address": 2}
    assert web.asked == []
