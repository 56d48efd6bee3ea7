"""Samples, captions and their order; hostile and damaged tars; patterns, folders and remote
stores."""

import gzip
import json
import os
import re
import tarfile

import fsspec
import pytest

from pairwright.schemas.config import ImagesConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, Failed, ImageRow, make_key
from pairwright.tasks.sources import webdataset
from pairwright.tasks.sources.find_files import FilePattern
from pairwright.tasks.sources.readers import recognise_source
from pairwright.tasks.sources.webdataset import MAX_OF_SAMPLE, MAX_TEXT, READER
from tests.fixtures.pictures import photograph, picture
from tests.fixtures.tables import config_of as source_config
from tests.fixtures.tables import read_all
from tests.fixtures.tars import entry, raw_header, write_tar


def config_of(path, **options):
    return source_config("webdataset", path, **options)


def listed(path, limit=None):
    return list(READER.list_items(config_of(path), limit))


def read(path, **options):
    return read_all(config_of(path, **options))[1]


def reasons(path, **options):
    rows = read(path, **options)
    assert all(len(got) == 1 for got in rows.values())
    return {name: got[0].reason for name, got in rows.items() if isinstance(got[0], Dropped)}


def test_a_sample_becomes_an_image_with_captions_licence_and_group(tmp_path):
    record = {
        "caption": "from json",
        "url": "http://x.example/1.jpg",
        "license": "CC-BY-4.0",
        "group": 7,
    }
    path = write_tar(
        tmp_path / "a.tar",
        ("0001.jpg", picture(1, kind="JPEG")),
        ("0001.txt", b"from text\n"),
        ("0001.caption", b"from caption"),
        ("0001.json", json.dumps(record).encode()),
        ("0001.cls", b"3"),
    )
    (row,) = read(path)["a.tar/0001"]
    about = {"source": "webdataset", "licence": "CC-BY-4.0", "group": "7"}
    about |= {
        "source_key": listed(path)[0].key,
        "captions": ("from text", "from caption", "from json"),
    }
    assert row == photograph(picture(1, kind="JPEG"), name="a.tar/0001.jpg", **about)
    (row,) = read(path, limits=ImagesConfig(licence="CC0-1.0"), caption_column="url")["a.tar/0001"]
    assert (row.licence, row.captions[2]) == ("CC0-1.0", "http://x.example/1.jpg")


def test_samples_are_listed_in_tar_order_with_scattered_members(tmp_path):
    path = write_tar(
        tmp_path / "a.tar",
        ("./b/2.png", picture(2)),
        ("1.txt", b"one"),
        ("b/2.txt", b"two"),
        ("1.png", picture(1)),
        ("README.md", b"ignored"),
        (".hidden.png", b"ignored"),
        ("__MACOSX/._1.png", b"ignored"),
        (entry("b/", type=tarfile.DIRTYPE)),
    )
    assert [item.name for item in listed(path)] == ["a.tar/b/2", "a.tar/1"]
    assert [item.name for item in listed(path, limit=1)] == ["a.tar/b/2"]
    rows = read(path)
    assert [rows[name][0].captions for name in rows] == [("two",), ("one",)]


def test_the_plainest_images_of_a_sample_count_and_several_are_a_group(tmp_path):
    path = write_tar(
        tmp_path / "a.tar",
        ("1.png", picture(1)),
        ("1.mask.png", picture(2)),
        ("2.after.png", picture(3)),
        ("2.before.png", picture(4)),
        ("2.before.txt", b"a dog"),
        ("2.txt", b"about both"),
    )
    rows = read(path)
    assert [(row.name, row.group) for row in rows["a.tar/1"]] == [("a.tar/1.png", "")]
    assert [(row.name, row.group, row.captions) for row in rows["a.tar/2"]] == [
        ("a.tar/2.after.png", "a.tar/2", ()),
        ("a.tar/2.before.png", "a.tar/2", ("a dog",)),
    ]


@pytest.mark.parametrize("layout", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_odd_names_in_every_layout(tmp_path, layout):
    stems = ["d" * 90 + "/" + "x" * 60, "é 😀", "new\nline"]
    if layout != tarfile.USTAR_FORMAT:
        stems += ["y" * 300]
    entries = [(f"{stem}.png", picture(number)) for number, stem in enumerate(stems)]
    path = write_tar(tmp_path / "a.tar", *entries, format=layout)
    rows = read(path)
    assert list(rows) == ["a.tar/" + stem.replace("\n", r"\n") for stem in stems]
    assert all(isinstance(row, ImageRow) for (row,) in rows.values())


def test_hostile_members_are_refused(tmp_path):
    passwd = {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}
    cases = [
        ("../up", "path leaves the archive", [("../up.png", picture(1))]),
        ("a/../../up2", "path leaves the archive", [("a/../../up2.png", picture(1))]),
        ("/etc/abs", "path leaves the archive", [("/etc/abs.png", picture(1))]),
        ("soft", "link in an archive", [entry("soft.png", **passwd)]),
        (
            "hard",
            "link in an archive",
            [entry("hard.png", type=tarfile.LNKTYPE, linkname="good.png")],
        ),
        (
            "char",
            "not a regular file",
            [entry("char.png", type=tarfile.CHRTYPE, devmajor=1, devminor=5)],
        ),
        ("block", "not a regular file", [entry("block.png", type=tarfile.BLKTYPE)]),
        ("pipe", "not a regular file", [entry("pipe.png", type=tarfile.FIFOTYPE)]),
        ("big", "file too large", [("big.png", picture(2, kind="BMP", size=(100, 100)))]),
        (
            "caption",
            "link in an archive",
            [("caption.png", picture(3)), entry("caption.txt", **passwd)],
        ),
        ("twice", "duplicated member", [("twice.png", picture(4)), ("twice.png", picture(5))]),
        ("words", "no image in the sample", [("words.txt", b"no image here")]),
        ("long", "file too large", [("long.png", picture(6)), ("long.txt", b"x" * (MAX_TEXT + 1))]),
        (
            "latin",
            "damaged caption or record",
            [("latin.png", picture(7)), ("latin.txt", b"caf\xe9")],
        ),
        (
            "json",
            "damaged caption or record",
            [("json.png", picture(8)), ("json.json", b'{"caption": ')],
        ),
        (
            "deep",
            "damaged caption or record",
            [("deep.png", picture(9)), ("deep.json", b"[" * 100_000)],
        ),
        ("text", "not an image", [("text.jpg", b"hello")]),
        (
            "many",
            "too many members of one basename",
            [(f"many.{n}.png", b"") for n in range(MAX_OF_SAMPLE + 1)],
        ),
    ]
    members = [member for _, _, members in cases for member in members]
    path = write_tar(tmp_path / "a.tar", ("good.png", picture()), *members)
    found = reasons(path, limits=ImagesConfig(max_bytes=20_000))
    assert found == {f"a.tar/{stem}": reason for stem, reason, _ in cases}


def test_sparse_members_are_refused_and_what_follows_is_found(tmp_path):
    path = tmp_path / "a.tar"
    old = bytearray(raw_header("old.png", 512, b"S"))
    old[482] = 1
    old[148:156] = b"%06o\0 " % (sum(old[:148]) + 256 + sum(old[156:]))
    good = write_tar(tmp_path / "good.tar", ("good.png", picture())).read_bytes()
    path.write_bytes(bytes(old) + bytes(512) + b"p" * 512 + good)
    assert reasons(path) == {"a.tar/old": "sparse file in an archive"}
    assert isinstance(read(path)["a.tar/good"][0], ImageRow)


SPARSE = b"22 GNU.sparse.major=1\n" + b"22 GNU.sparse.minor=0\n"


@pytest.mark.parametrize(
    "header",
    [
        raw_header("p", 6, b"x") + b"99 a=\n".ljust(512, b"\0"),
        raw_header("p", 12, b"x") + b"12 size=-99\n".ljust(512, b"\0"),
        raw_header("p", 12, b"x") + b"12 size=abc\n".ljust(512, b"\0"),
        raw_header("p", len(SPARSE), b"x")
        + SPARSE.ljust(512, b"\0")
        + raw_header("s.png", 6)
        + b"sparse"
        + bytes(506),
        raw_header("p", 2 << 20, b"x") + bytes(2 << 20),
        raw_header("p", 2 << 20, b"L") + bytes(2 << 20),
        raw_header("p", 6_000, b"L") + (b"n" * 5_990 + b".png").ljust(6_144, b"\0"),
    ],
)
def test_extended_headers_that_make_no_sense_leave_what_was_before(tmp_path, header):
    first, second = ("a.png", picture()), ("b.png", picture(1))
    one = write_tar(tmp_path / "one.tar", first).read_bytes()[
        : 512 + -(-len(first[1]) // 512) * 512
    ]
    path = tmp_path / "a.tar"
    path.write_bytes(one + header + write_tar(tmp_path / "two.tar", second).read_bytes())
    rows = [row for found in read(path).values() for row in found]
    assert rows[0].key == make_key(first[1])
    assert all(isinstance(row, ImageRow | Dropped) for row in rows)
    assert 2 <= len(rows) <= 3


def test_damaged_tars_give_whole_samples_and_report_the_rest(tmp_path):
    whole = write_tar(
        tmp_path / "whole.tar", ("a.png", picture(1)), ("b.png", picture(2))
    ).read_bytes()
    second = 512 + -(-len(picture(1)) // 512) * 512
    for name, reason, rest in (
        ("cut", "truncated archive", whole[second : second + 600]),
        ("header", "truncated archive", whole[second : second + 100]),
        ("noend", "truncated archive", b""),
        ("noise", "damaged archive", b"x" * 512 + whole[second:]),
        ("absurd", "truncated archive", raw_header("huge.png", 2**62) + bytes(1024)),
        ("negative", "damaged archive", raw_header("huge.png", -5) + bytes(1024)),
    ):
        path = tmp_path / f"{name}.tar"
        path.write_bytes(whole[:second] + rest)
        assert [type(row).__name__ for (row,) in read(path).values()] == ["ImageRow", "Dropped"], (
            name
        )
        assert reasons(path) == {f"{name}.tar": reason}


@pytest.mark.parametrize("data", [b"", b"this is no tar" * 100, bytes(10240)])
def test_a_file_that_is_no_tar_or_holds_no_sample_is_a_source_error(tmp_path, data):
    (tmp_path / "a.tar").write_bytes(data)
    with pytest.raises(SourceError, match=r"a\.tar: "):
        listed(tmp_path / "a.tar")


def test_gzipped_tars_are_refused_with_what_to_do(tmp_path):
    packed = gzip.compress(
        write_tar(tmp_path / "d/a.tar", ("a.png", picture())).read_bytes(), mtime=0
    )
    for name in ("d/b.tar.gz", "d/c.tgz", "d/d.tar", "alone.tar.gz"):
        (tmp_path / name).write_bytes(packed)
    gzipped = "gzipped archive"
    assert reasons(tmp_path / "d") == {"b.tar.gz": gzipped, "c.tgz": gzipped, "d.tar": gzipped}
    source = recognise_source(str(tmp_path / "alone.tar.gz"))
    assert source.startswith("webdataset:")
    with pytest.raises(SourceError, match=r"alone\.tar\.gz: gzipped archive: unpack it first"):
        listed(source.partition(":")[2])


@pytest.mark.parametrize(
    "place", ["missing.tar", "empty", "nothing-*.tar", "nothing-{0..3}.tar", "odd://x/a.tar"]
)
def test_nothing_to_list_is_a_source_error(tmp_path, place):
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match=re.escape(place)):
        listed(place if "://" in place else tmp_path / place)


def test_splits_are_refused(tmp_path):
    path = write_tar(tmp_path / "a.tar", ("a.png", picture()))
    with pytest.raises(SourceError, match=r"reading\.splits"):
        list(READER.list_items(config_of(path, splits=("train",)), None))


def shards(folder, count=3):
    for number in range(count):
        write_tar(folder / f"s-{number:03d}.tar", (f"{number}.png", picture(number)))


def test_patterns_and_folders_list_their_tars_in_order(tmp_path):
    shards(tmp_path / "d")
    write_tar(tmp_path / "d" / "deeper" / "z.TAR", ("z.png", picture(9)))
    (tmp_path / "d" / "s-folder.tar").mkdir()
    everything = ["deeper/z.TAR/z", "s-000.tar/0", "s-001.tar/1", "s-002.tar/2"]
    assert [item.name for item in listed(tmp_path / "d")] == everything
    assert [item.name for item in listed(f"{tmp_path}/d/s-{{002..000}}.tar")] == everything[:0:-1]
    assert [item.name for item in listed(f"{tmp_path}/d/s-*.tar")] == everything[1:]
    assert [item.name for item in listed(f"{tmp_path}/d/{{deeper/*.TAR,s-001.tar}}")] == [
        everything[0],
        everything[2],
    ]
    assert [item.name for item in listed(tmp_path / "d" / "s-001.tar")] == everything[2:3]
    (tmp_path / "d" / "s-001.tar").rename(tmp_path / "d" / "s-[0].tar")
    assert [item.name for item in listed(tmp_path / "d" / "s-[0].tar")] == ["s-[0].tar/1"]


def test_a_tar_that_a_pattern_names_and_that_is_missing_is_a_dropped_row(tmp_path):
    shards(tmp_path)
    (tmp_path / "s-001.tar").unlink()
    os.mkfifo(tmp_path / "s-001.tar")
    assert reasons(f"{tmp_path}/s-{{000..003}}.tar") == {
        "s-001.tar": "not a regular file",
        "s-003.tar": "missing file",
    }


def test_a_tar_that_changes_or_vanishes_after_listing(tmp_path):
    shards(tmp_path)
    config = config_of(tmp_path)
    items = listed(tmp_path)
    write_tar(tmp_path / "s-000.tar", ("0.png", picture(5)), ("1.png", picture(5)))
    os.utime(tmp_path / "s-000.tar", ns=(1, 1))
    (tmp_path / "s-001.tar").unlink()
    rows = list(READER.read_items(items, config))
    assert [getattr(row, "reason", "") for row in rows] == [
        "changed since it was listed",
        "missing file",
        "",
    ]


def test_a_disk_that_fails_leaves_its_items_owed(tmp_path, monkeypatch):
    shards(tmp_path, 1)
    config = config_of(tmp_path)
    items = listed(tmp_path)

    def refuse(self, name, **_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(FilePattern, "open", refuse)
    (row,) = READER.read_items(items, config)
    assert (type(row), row.reason) == (Failed, "I/O error")
    with pytest.raises(SourceError, match="Input/output error"):
        listed(tmp_path)


def test_too_many_members(tmp_path, monkeypatch):
    monkeypatch.setattr(webdataset, "MAX_MEMBERS", 3)
    path = write_tar(tmp_path / "a.tar", *((f"{n}.png", picture(n)) for n in range(5)))
    assert reasons(path) == {"a.tar": "too many members"}


def test_tars_in_a_remote_store(tmp_path):
    store = fsspec.filesystem("memory")
    shards(tmp_path, 2)
    for path in tmp_path.iterdir():
        store.pipe_file(f"/bucket/d/{path.name}", path.read_bytes())
    names = ["s-000.tar/0", "s-001.tar/1"]
    for source in (
        "memory://bucket/d",
        "memory://bucket/d/s-{000..001}.tar",
        "memory://bucket/d/*.tar",
    ):
        assert list(read(source)) == names
    rows = read("memory://bucket/d/s-001.tar")
    assert rows["s-001.tar/1"][0].image == picture(1)
    before = listed("memory://bucket/d")
    store.pipe_file("/bucket/d/s-001.tar", (tmp_path / "s-001.tar").read_bytes())
    after = listed("memory://bucket/d")
    assert [a.key == b.key for a, b in zip(after, before, strict=True)] == [True, False]
    store.rm("/bucket", recursive=True)


def test_tars_are_recognised_by_name_and_folders_by_what_they_hold(tmp_path):
    shards(tmp_path / "d", 1)
    assert (
        recognise_source(f"{tmp_path}/d/s-{{000..011}}.tar")
        == f"webdataset:{tmp_path}/d/s-{{000..011}}.tar"
    )
    assert recognise_source("s3://bucket/a.TAR") == "webdataset:s3://bucket/a.TAR"
    assert recognise_source(f"{tmp_path}/d") == f"webdataset:{tmp_path}/d"
    (tmp_path / "d" / "a.png").write_bytes(b"")
    assert recognise_source(f"{tmp_path}/d") == f"folder:{tmp_path}/d"
