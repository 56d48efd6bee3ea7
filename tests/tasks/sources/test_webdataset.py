"""Samples, captions and their order; hostile and damaged tars; patterns, folders, remote stores."""

import gzip
import json
import os
import re
import tarfile

import fsspec
import pytest

from pairwright.schemas.config import ImagesConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, ImageRow, make_key
from pairwright.tasks.sources import webdataset
from pairwright.tasks.sources.readers import recognise_source
from pairwright.tasks.sources.webdataset import MAX_OF_SAMPLE, MAX_TEXT
from tests.fixtures.pictures import photograph, picture
from tests.fixtures.sources import Source
from tests.fixtures.tars import entry, raw_header, write_tar

PNG = picture()
PADDED = 512 + -(-len(PNG) // 512) * 512
"""Bytes of a member of a tar, with its header."""


def tars(path, **options):
    return Source("webdataset", path, **options)


def one_tar(folder, *members, limits=None, **options):
    return tars(write_tar(folder / "a.tar", *members, **options), limits=limits)


def test_a_sample_becomes_an_image_with_captions_licence_and_group(tmp_path):
    record = {"caption": "from json", "url": "http://x.example/1.jpg", "license": "CC-BY-4.0"}
    data = picture(1, kind="JPEG")
    source = one_tar(
        tmp_path,
        ("0001.jpg", data),
        ("0001.txt", b"from text\n"),
        ("0001.caption", b"from caption"),
        ("0001.json", json.dumps(record | {"group": 7}).encode()),
        ("0001.cls", b"3"),
    )
    assert source.row() == photograph(
        data,
        name="a.tar/0001.jpg",
        source_key=source.items()[0].key,
        source="webdataset",
        licence="CC-BY-4.0",
        group="7",
        captions=("from text", "from caption", "from json"),
    )
    limits = ImagesConfig(licence="CC0-1.0")
    row = tars(tmp_path / "a.tar", limits=limits, caption_column="url").row()
    assert (row.licence, row.captions[2]) == ("CC0-1.0", "http://x.example/1.jpg")


def test_samples_are_listed_in_tar_order_with_scattered_members(tmp_path):
    source = one_tar(
        tmp_path,
        ("./b/2.png", picture(2)),
        ("1.txt", b"one"),
        ("b/2.txt", b"two"),
        ("1.png", picture(1)),
        ("README.md", b"ignored"),
        (".hidden.png", b"ignored"),
        ("__MACOSX/._1.png", b"ignored"),
        entry("b/", type=tarfile.DIRTYPE),
    )
    assert source.names(limit=1) == ["a.tar/b/2"]
    captions = {name: row.captions for name, (row,) in source.rows().items()}
    assert list(captions.items()) == [("a.tar/b/2", ("two",)), ("a.tar/1", ("one",))]


def test_the_plainest_images_of_a_sample_count_and_several_are_a_group(tmp_path):
    texts = [("2.before.txt", b"a dog"), ("2.txt", b"about both")]
    names = ("1.png", "1.mask.png", "2.after.png", "2.before.png")
    rows = one_tar(tmp_path, *((name, PNG) for name in names), *texts).read()
    assert [(row.name, row.group, row.captions) for row in rows] == [
        ("a.tar/1.png", "", ()),
        ("a.tar/2.after.png", "a.tar/2", ()),
        ("a.tar/2.before.png", "a.tar/2", ("a dog",)),
    ]


@pytest.mark.parametrize("layout", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_odd_names_in_every_layout(tmp_path, layout):
    stems = ["d" * 90 + "/" + "x" * 60, "é 😀", "new\nline"]
    stems += ["y" * 300] * (layout != tarfile.USTAR_FORMAT)
    members = [(f"{stem}.png", picture(number)) for number, stem in enumerate(stems)]
    keys = one_tar(tmp_path, *members, format=layout).keys()
    assert list(keys) == ["a.tar/" + stem.replace("\n", r"\n") for stem in stems]


PASSWD = {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}
DEVICE = {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 5}
LARGE = picture(kind="BMP", size=(100, 100))
UNREADABLE = "damaged caption or record"


@pytest.mark.parametrize(
    ("stem", "reason", "members"),
    [
        ("../up", "path leaves the archive", [("../up.png", PNG)]),
        ("a/../../up2", "path leaves the archive", [("a/../../up2.png", PNG)]),
        ("/etc/abs", "path leaves the archive", [("/etc/abs.png", PNG)]),
        ("soft", "link in an archive", [entry("soft.png", **PASSWD)]),
        ("hard", "link in an archive", [entry("hard.png", type=tarfile.LNKTYPE, linkname="g.png")]),
        ("char", "not a regular file", [entry("char.png", **DEVICE)]),
        ("block", "not a regular file", [entry("block.png", type=tarfile.BLKTYPE)]),
        ("pipe", "not a regular file", [entry("pipe.png", type=tarfile.FIFOTYPE)]),
        ("big", "file too large", [("big.png", LARGE)]),
        ("caption", "link in an archive", [("caption.png", PNG), entry("caption.txt", **PASSWD)]),
        ("twice", "duplicated member", [("twice.png", PNG), ("twice.png", picture(5))]),
        ("words", "no image in the sample", [("words.txt", b"no image here")]),
        ("long", "file too large", [("long.png", PNG), ("long.txt", b"x" * (MAX_TEXT + 1))]),
        ("latin", UNREADABLE, [("latin.png", PNG), ("latin.txt", b"caf\xe9")]),
        ("json", UNREADABLE, [("json.png", PNG), ("json.json", b'{"caption": ')]),
        ("deep", UNREADABLE, [("deep.png", PNG), ("deep.json", b"[" * 100_000)]),
        ("text", "not an image", [("text.jpg", b"hello")]),
        (
            "many",
            "too many members of one basename",
            [(f"many.{number}.png", b"") for number in range(MAX_OF_SAMPLE + 1)],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_hostile_member_drops_its_sample(tmp_path, stem, reason, members):
    limits = ImagesConfig(max_bytes=20_000)
    source = one_tar(tmp_path, ("good.png", PNG), *members, ("last.png", PNG), limits=limits)
    assert source.reasons() == {f"a.tar/{stem}": reason}
    assert list(source.keys()) == ["a.tar/good", "a.tar/last"]


def test_sparse_members_are_refused_and_what_follows_is_found(tmp_path):
    old = bytearray(raw_header("old.png", 512, b"S"))
    old[482] = 1
    old[148:156] = b"%06o\0 " % (sum(old[:148]) + 256 + sum(old[156:]))
    good = write_tar(tmp_path / "good.tar", ("good.png", PNG)).read_bytes()
    path = tmp_path / "a.tar"
    path.write_bytes(bytes(old) + bytes(512) + b"p" * 512 + good)
    assert tars(path).reasons() == {"a.tar/old": "sparse file in an archive"}
    assert tars(path).keys() == {"a.tar/good": [make_key(PNG)]}


def extended(kind, body, size=None):
    return raw_header("p", len(body) if size is None else size, kind) + body.ljust(
        -(-len(body) // 512) * 512, b"\0"
    )


SPARSE = extended(b"x", b"22 GNU.sparse.major=1\n" + b"22 GNU.sparse.minor=0\n")


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(extended(b"x", b"99 a=\n"), id="a length that lies"),
        pytest.param(extended(b"x", b"12 size=-99\n"), id="a negative size"),
        pytest.param(extended(b"x", b"12 size=abc\n"), id="a size of letters"),
        pytest.param(SPARSE + raw_header("s.png", 6) + b"sparse".ljust(512, b"\0"), id="sparse"),
        pytest.param(extended(b"x", bytes(2 << 20)), id="a huge pax header"),
        pytest.param(extended(b"L", bytes(2 << 20)), id="a huge long name"),
        pytest.param(extended(b"L", b"n" * 5_990 + b".png", 6_000), id="a long name"),
    ],
)
def test_extended_headers_that_make_no_sense_leave_what_was_before(tmp_path, header):
    first = write_tar(tmp_path / "one.tar", ("a.png", PNG)).read_bytes()
    second = write_tar(tmp_path / "two.tar", ("b.png", picture(1))).read_bytes()
    path = tmp_path / "a.tar"
    path.write_bytes(first[:PADDED] + header + second)
    rows = tars(path).read()
    assert rows[0].key == make_key(PNG)
    assert all(isinstance(row, ImageRow | Dropped) for row in rows)
    assert 2 <= len(rows) <= 3


@pytest.mark.parametrize(
    ("reason", "rest"),
    [
        pytest.param("truncated archive", lambda member: member[:600], id="a cut member"),
        pytest.param("truncated archive", lambda member: member[:100], id="a cut header"),
        pytest.param("truncated archive", lambda member: b"", id="no end"),
        pytest.param("damaged archive", lambda member: b"x" * 512 + member, id="noise"),
        pytest.param(
            "truncated archive",
            lambda member: raw_header("huge.png", 2**62) + bytes(1024),
            id="an absurd size",
        ),
        pytest.param(
            "damaged archive",
            lambda member: raw_header("huge.png", -5) + bytes(1024),
            id="a negative size",
        ),
    ],
)
def test_a_damaged_tar_gives_whole_samples_and_reports_the_rest(tmp_path, reason, rest):
    whole = write_tar(tmp_path / "whole.tar", ("a.png", PNG), ("b.png", picture(2))).read_bytes()
    path = tmp_path / "a.tar"
    path.write_bytes(whole[:PADDED] + rest(whole[PADDED:]))
    assert tars(path).reasons() == {"a.tar": reason}
    assert tars(path).keys() == {"a.tar/a": [make_key(PNG)]}


@pytest.mark.parametrize("data", [b"", b"this is no tar" * 100, bytes(10240)])
def test_a_file_that_is_no_tar_or_holds_no_sample_is_a_source_error(tmp_path, data):
    (tmp_path / "a.tar").write_bytes(data)
    with pytest.raises(SourceError, match=r"a\.tar: "):
        tars(tmp_path / "a.tar").items()


@pytest.mark.parametrize("name", ["b.tar.gz", "c.tgz", "d.tar"])
def test_a_gzipped_tar_among_others_is_dropped(tmp_path, name):
    good = write_tar(tmp_path / "a.tar", ("a.png", PNG))
    (tmp_path / name).write_bytes(gzip.compress(good.read_bytes(), mtime=0))
    assert tars(tmp_path).reasons() == {name: "gzipped archive"}


def test_a_gzipped_tar_alone_is_refused_with_what_to_do(tmp_path):
    path = tmp_path / "alone.tar.gz"
    path.write_bytes(gzip.compress(b"a tar", mtime=0))
    assert recognise_source(str(path)) == f"webdataset:{path}"
    with pytest.raises(SourceError, match=r"alone\.tar\.gz: gzipped archive: unpack it first"):
        tars(path).items()


@pytest.mark.parametrize(
    "place", ["missing.tar", "nothing-*.tar", "nothing-{0..3}.tar", "odd://x/a.tar"]
)
def test_a_pattern_of_nothing_is_a_source_error(place):
    with pytest.raises(SourceError, match=re.escape(place)):
        tars(place).items()


def write_shards(folder, count=3):
    for number in range(count):
        write_tar(folder / f"s-{number:03d}.tar", (f"{number}.png", picture(number)))


DEEPER, FIRST, SECOND, THIRD = "deeper/z.TAR/z", "s-000.tar/0", "s-001.tar/1", "s-002.tar/2"


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("d", [DEEPER, FIRST, SECOND, THIRD]),
        ("d/s-{002..000}.tar", [THIRD, SECOND, FIRST]),
        ("d/s-*.tar", [FIRST, SECOND, THIRD]),
        ("d/{deeper/*.TAR,s-001.tar}", [DEEPER, SECOND]),
        ("d/s-001.tar", [SECOND]),
        ("x-[0].tar", ["x-[0].tar/x"]),
    ],
)
def test_patterns_and_folders_list_their_tars_in_order(tmp_path, pattern, names):
    write_shards(tmp_path / "d")
    write_tar(tmp_path / "d/deeper/z.TAR", ("z.png", picture(9)))
    write_tar(tmp_path / "x-[0].tar", ("x.png", picture(9)))
    (tmp_path / "d/s-folder.tar").mkdir()
    assert tars(tmp_path / pattern).names() == names


def test_a_tar_that_a_pattern_names_and_that_is_missing_is_dropped(tmp_path):
    write_shards(tmp_path)
    (tmp_path / "s-001.tar").unlink()
    os.mkfifo(tmp_path / "s-001.tar")
    assert tars(f"{tmp_path}/s-{{000..003}}.tar").reasons() == {
        "s-001.tar": "not a regular file",
        "s-003.tar": "missing file",
    }


def test_too_many_members(tmp_path, monkeypatch):
    monkeypatch.setattr(webdataset, "MAX_MEMBERS", 3)
    source = one_tar(tmp_path, *((f"{number}.png", PNG) for number in range(5)))
    assert source.reasons() == {"a.tar": "too many members"}


def test_tars_in_a_remote_store(tmp_path):
    store = fsspec.filesystem("memory")
    write_shards(tmp_path, 2)
    for path in tmp_path.iterdir():
        store.pipe_file(f"/bucket/d/{path.name}", path.read_bytes())
    for place in ("d", "d/s-{000..001}.tar", "d/*.tar"):
        assert list(tars(f"memory://bucket/{place}").keys()) == [FIRST, SECOND]
    assert tars("memory://bucket/d/s-001.tar").row().image == picture(1)
    before = tars("memory://bucket/d").items()
    store.pipe_file("/bucket/d/s-001.tar", (tmp_path / "s-001.tar").read_bytes())
    after = tars("memory://bucket/d").items()
    assert [new.key == old.key for new, old in zip(after, before, strict=True)] == [True, False]
    store.rm("/bucket", recursive=True)


def test_tars_are_recognised_by_name_and_folders_by_what_they_hold(tmp_path):
    write_shards(tmp_path, 1)
    for place in (f"{tmp_path}/s-{{000..011}}.tar", "s3://bucket/a.TAR", str(tmp_path)):
        assert recognise_source(place) == f"webdataset:{place}"
    (tmp_path / "a.png").write_bytes(b"")
    assert recognise_source(str(tmp_path)) == f"folder:{tmp_path}"
