"""Published files of weights: what is taken, what is fetched, what another process or a kill leaves behind."""

import hashlib
import json
import logging
import os
import random
import re
import resource
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.fetching import fetch_file
from pairwright.tasks.models.fetching.file_records import read_record, record_path
from pairwright.tasks.models.fetching.published import PublishedFile, find_fault, find_published, weights_folder
from pairwright.tasks.models.fetching.rehearse import rehearsing
from pairwright.tasks.models.weights import identify_files
from tests.fixtures.file_server import Fault, serving_files

DATA = random.Random(1).randbytes(200_000)
OTHER = random.Random(2).randbytes(200_000)
SHA = hashlib.sha256(DATA).hexdigest()
OTHER_SHA = hashlib.sha256(OTHER).hexdigest()
FETCH = """
import sys, logging
logging.basicConfig(level=logging.INFO)
from pairwright.tasks.models.fetching.published import PublishedFile, find_published
name, url, sha256 = sys.argv[1:]
print(find_published(PublishedFile(field="tagging.ram", name=name, url=url, sha256=sha256), download=True))
"""


@pytest.fixture
def web():
    with serving_files() as running:
        yield running


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PAIRWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(fetch_file, "LIMITS", fetch_file.Limits(pause_s=0.001))
    return tmp_path / "cache" / "weights"


@pytest.fixture
def wanted(web):
    return PublishedFile(field="tagging.ram", name="a.pth", url=web.put("/a.pth", DATA), sha256=SHA)


def put(folder, data, name="a.pth"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    return folder / name


def refused(file, *, download=False):
    with pytest.raises(ModelError) as caught:
        find_published(file, download=download)
    return str(caught.value)


def start(wanted, **environment):
    words = [sys.executable, "-c", FETCH, wanted.name, wanted.url, wanted.sha256]
    return subprocess.Popen(
        words, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_the_cache_has_a_place_of_its_own(monkeypatch, tmp_path):
    assert weights_folder() == tmp_path / "cache" / "weights"
    monkeypatch.delenv("PAIRWRIGHT_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert weights_folder() == tmp_path / ".cache" / "pairwright" / "weights"


def test_a_missing_file_is_named_with_its_place_and_what_fetches_it(wanted, folder, web):
    assert refused(wanted) == (
        f"tagging.ram: a.pth is not on this machine: looked for {folder}/a.pth. It is published at {wanted.url}. Fetch "
        "it with `pairwright fetch` and the same --profile and --set, put it there yourself, or let the build fetch "
        "it: --set tagging.download=true"
    )
    assert not web.asked
    assert not folder.exists()


def test_a_file_is_fetched_verified_and_recorded(wanted, folder, web):
    path = find_published(wanted, download=True)
    assert (path, path.read_bytes()) == (folder / "a.pth", DATA)
    assert {file.name for file in folder.iterdir()} == {"a.pth", "a.pth.verified.json", ".a.pth.lock"}
    record = json.loads((folder / "a.pth.verified.json").read_text())
    assert (record["sha256"], record["size"]) == (SHA, len(DATA))
    assert find_published(wanted, download=False) == find_published(wanted, download=True) == path
    assert len(web.asked) == 1


def test_a_recorded_file_is_not_hashed_again(wanted, folder, monkeypatch):
    find_published(wanted, download=True)
    before = identify_files([folder / "a.pth"])
    record_path(folder / "a.pth").rename(folder / "aside")
    assert identify_files([folder / "a.pth"]) == before  # the record holds the very hash that identifies files
    (folder / "aside").rename(record_path(folder / "a.pth"))
    monkeypatch.setattr(
        "pairwright.tasks.models.fetching.published.measure_file", lambda path: pytest.fail("hashes it")
    )
    monkeypatch.setattr("pairwright.tasks.models.weights._hash", lambda *words: pytest.fail("hashes it"))
    assert find_published(wanted, download=False) == folder / "a.pth"
    assert identify_files([folder / "a.pth"]) == before


def test_a_file_put_there_by_hand_is_taken_if_it_is_the_published_one(wanted, folder, web):
    path = put(folder, DATA)
    assert find_published(wanted, download=False) == path
    assert read_record(path).sha256 == SHA
    assert not web.asked


def test_another_file_is_refused_and_replaced_where_that_is_allowed(wanted, folder):
    path = put(folder, DATA[:1000])
    words = refused(wanted)
    assert f"{path} is another file: its SHA-256 is {hashlib.sha256(DATA[:1000]).hexdigest()}" in words
    assert f"the published one: {SHA}" in words
    assert find_published(wanted, download=True).read_bytes() == DATA


def test_a_file_that_changed_since_it_was_verified_is_refused(wanted, folder):
    path = find_published(wanted, download=True)
    path.write_bytes(OTHER)
    assert "is another file" in refused(wanted)


def test_a_change_that_keeps_size_and_time_is_found_when_it_is_verified_afresh(wanted):
    path = find_published(wanted, download=True)
    state = path.stat()
    path.write_bytes(OTHER)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert find_fault(wanted, path) == ""
    assert "is another file" in find_fault(wanted, path, afresh=True)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"sha256": 1, "xxh3": 2, "size": "x", "mtime_ns": 0}', "[" * 9999]
)
def test_a_damaged_record_is_made_anew(wanted, text):
    path = find_published(wanted, download=True)
    record_path(path).write_text(text)
    assert find_published(wanted, download=False) == path
    assert read_record(path).sha256 == SHA


def test_a_cache_that_cannot_be_written_is_read(wanted, folder, monkeypatch):
    path = put(folder, DATA)
    monkeypatch.setattr("pathlib.Path.write_text", lambda *words, **options: (_ for _ in ()).throw(PermissionError()))
    assert find_published(wanted, download=False) == path
    assert [file.name for file in folder.iterdir()] == ["a.pth"]


def test_a_wrong_hash_is_told_with_both_and_nothing_is_left(wanted, folder):
    wrong = replace(wanted, sha256="0" * 64)
    words = refused(wrong, download=True)
    assert re.match(f"tagging.ram: a.pth .*{wanted.url}: ", words)
    assert f"SHA-256 {SHA}, the published one: {'0' * 64}; it was removed" in words
    assert {file.name for file in folder.iterdir()} == {".a.pth.lock"}


def test_without_a_published_hash_the_first_one_counts(wanted, folder, web, caplog):
    caplog.set_level(logging.INFO)
    unhashed = replace(wanted, sha256="")
    path = find_published(unhashed, download=True)
    assert re.search(f"a.pth: .*SHA-256 {SHA}", caplog.text)
    caplog.clear()
    assert find_published(unhashed, download=False) == path
    assert "SHA-256" not in caplog.text
    path.write_bytes(OTHER)
    assert f"the first one that was found, in {record_path(path)}: {SHA}" in refused(unhashed)
    path.unlink()
    web.put("/a.pth", OTHER)
    words = refused(unhashed, download=True)
    assert f"SHA-256 {OTHER_SHA}, the first one that was found, in {record_path(path)}: {SHA}; it was removed" in words
    web.put("/a.pth", DATA)
    assert find_published(unhashed, download=True).read_bytes() == DATA
    record_path(path).unlink()
    path.unlink()
    web.put("/a.pth", OTHER)
    assert find_published(unhashed, download=True).read_bytes() == OTHER


def test_a_lost_server_is_one_message_and_the_part_is_kept(wanted, folder, web):
    web.next_answers = [Fault(cut=50_000)] + [Fault(status=503)] * 6
    assert "the server answers HTTP 503; gave up after 6 tries" in refused(wanted, download=True)
    assert (folder / "a.pth.part").stat().st_size == 50_000
    assert find_published(wanted, download=True).read_bytes() == DATA
    assert web.gets[-1] == ("/a.pth", "bytes=50000-")


def test_a_killed_fetch_is_taken_up(wanted, folder, web):
    stall = threading.Event()
    web.next_answers = [Fault(cut=120_000, stall=stall)]
    with start(wanted) as process:
        part = folder / "a.pth.part"
        wait_for(lambda: part.exists() and part.stat().st_size > 65_536)
        process.kill()
    stall.set()
    assert not (folder / "a.pth").exists()
    there = part.stat().st_size
    assert 65_536 < there <= 120_000
    assert find_published(wanted, download=True).read_bytes() == DATA
    assert web.gets[-1] == ("/a.pth", f"bytes={there}-")


def test_a_fetch_killed_before_the_file_got_its_name_fetches_nothing_again(wanted, folder, web):
    path = find_published(wanted, download=True)
    note = {"url": wanted.url, "etag": web.etags["/a.pth"], "total": len(DATA)}
    (folder / "a.pth.part.json").write_text(json.dumps(note))
    path.rename(folder / "a.pth.part")
    assert find_published(wanted, download=True).read_bytes() == DATA
    assert web.gets[-1] == ("/a.pth", f"bytes={len(DATA)}-")


def test_of_two_at_once_one_fetches_and_both_have_it(wanted, web):
    stall = threading.Event()
    web.next_answers = [Fault(cut=100_000, stall=stall)]
    with start(wanted) as first:
        wait_for(lambda: web.asked)
        with start(wanted) as second:
            assert "another process" in second.stderr.readline()
            stall.set()
            ends = [process.communicate()[0] for process in (first, second)]
    assert ends[0] == ends[1] == f"{weights_folder() / 'a.pth'}\n"
    assert web.gets == [("/a.pth", None), ("/a.pth", "bytes=100000-")]


def test_a_full_disk_is_told_and_the_part_is_kept(wanted, folder):
    code = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n{FETCH}"
    words = [sys.executable, "-c", code, wanted.name, wanted.url, wanted.sha256]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.search(f"ModelError: tagging.ram: a.pth .*{wanted.url}: ", done.stderr)
    assert re.search("a.pth.part .*File too large", done.stderr)
    assert (folder / "a.pth.part").stat().st_size <= 100_000
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 100_000
    assert find_published(wanted, download=True).read_bytes() == DATA


def test_a_folder_that_cannot_be_made_is_told(wanted, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PAIRWRIGHT_CACHE", str(tmp_path / "file"))
    assert "cannot be written: Not a directory" in refused(wanted, download=True)


def test_a_rehearsal_notes_what_is_looked_for_and_gives_empty_files(wanted, folder, web):
    other = replace(wanted, name="b.pth")
    path = put(folder, DATA)
    with rehearsing() as noted:
        assert find_published(wanted, download=True) == path
        stand_in = find_published(other, download=True)
        assert (stand_in.name, stand_in.read_bytes()) == ("b.pth", b"")
        find_published(other, download=False)
    assert noted == [wanted, other]
    assert not stand_in.exists()
    assert not web.asked
    assert "b.pth is not on this machine" in refused(other)


def wait_for(condition):
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)
