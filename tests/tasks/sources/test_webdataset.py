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


def test_a_sample_becomes_an_image_with_captions_licence_and_group(tmp_path) -> None:
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


def test_samples_are_listed_in_tar_order_with_scattered_members(tmp_path) -> None:
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


def test_the_plainest_images_of_a_sample_count_and_several_are_a_group(tmp_path) -> None:
    texts = [("2.before.txt", b"a dog"), ("2.txt", b"about both")]
    names = ("1.png", "1.mask.png", "2.after.png", "2.before.png")
    rows = one_tar(tmp_path, *((name, PNG) for name in names), *texts).read()
    assert [(row.name, row.group, row.captions) for row in rows] == [
        ("a.tar/1.png", "", ()),
        ("a.tar/2.after.png", "a.tar/2", ()),
        ("a.tar/2.before.png", "a.tar/2", ("a dog",)),
    ]


@pytest.mark.parametrize("layout", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_odd_names_in_every_layout(tmp_path, layout) -> None:
    stems = ["d" * 90 + "/" + "x" * 60, "é 😀", "new\nline"]
    stems += ["y" * 300] * (layout != tarfile.USTAR_FORMAT)
    members = [(f"{stem}.png", picture(number)) for number, stem in enumerate(stems)]
    keys = one_tar(tmp_path, *members, format=layout).keys()
    assert list(keys) == ["a.tar/" + stem.replace("\n", r"\n") for stem in stems]


PASSWD = {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}
DEVICE = {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 5}
LARGE = picture(kind="BMP", size=(100, 100))


@pytest.mark.parametrize(
    ("stem", "reason", "members"),
    [
        ("../up", "path leaves the archive", [("../up.png", PNG)]),
        ("/etc/abs", "path leaves the archive", [("/etc/abs.png", PNG)]),
        ("soft", "link in an archive", [entry("soft.png", **PASSWD)]),
        ("hard", "link in an archive", [entry("hard.png", type=tarfile.LNKTYPE, linkname="g.png")]),
        ("char", "not a regular file", [entry("char.png", **DEVICE)]),
        ("pipe", "not a regular file", [entry("pipe.png", type=tarfile.FIFOTYPE)]),
        ("big", "file too large", [("big.png", LARGE)]),
        ("caption", "link in an archive", [("caption.png", PNG), entry("caption.txt", **PASSWD)]),
        ("twice", "duplicated member", [("twice.png", PNG), ("twice.png", picture(5))]),
        ("words", "no image in the sample", [("words.txt", b"no image here")]),
        ("long", "file too large", [("long.png", PNG), ("long.txt", b"x" * (MAX_TEXT + 1))]),
        ("text", "not an image", [("text.jpg", b"hello")]),
        (
            "many",
            "too many members of one basename",
            [(f"many.{number}.png", b"") for number in range(MAX_OF_SAMPLE + 1)],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_hostile_member_drops_its_sample(tmp_path, stem, reason, members) -> None:
    limits = ImagesConfig(max_bytes=20_000)
    source = one_tar(tmp_path, ("good.png", PNG), *members, ("last.png", PNG), limits=limits)
    assert source.reasons() == {f"a.tar/{stem}": reason}
    assert list(source.keys()) == ["a.tar/good", "a.tar/last"]


def test_too_many_members_are_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(webdataset, "MAX_MEMBERS", 3)
    source = one_tar(tmp_path, *((f"{number}.png", PNG) for number in range(5)))
    assert source.reasons() == {"a.tar": "too many members"}


def test_sparse_members_are_refused_and_what_follows_is_found(tmp_path) -> None:
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


NO_SENSE = {
    "a length that lies": extended(b"x", b"99 a=\n"),
    "a negative size": extended(b"x", b"12 size=-99\n"),
    "sparse": SPARSE + raw_header("s.png", 6) + b"sparse".ljust(512, b"\0"),
    "a huge pax header": extended(b"x", bytes(2 << 20)),
    "a huge long name": extended(b"L", bytes(2 << 20)),
    "a long name": extended(b"L", b"n" * 5_990 + b".png", 6_000),
}


@pytest.mark.parametrize("header", NO_SENSE.values(), ids=NO_SENSE)
def test_extended_headers_that_make_no_sense_leave_what_was_before(tmp_path, header) -> None:
    first = write_tar(tmp_path / "one.tar", ("a.png", PNG)).read_bytes()
    second = write_tar(tmp_path / "two.tar", ("b.png", picture(1))).read_bytes()
    path = tmp_path / "a.tar"
    path.write_bytes(first[:PADDED] + header + second)
    rows = tars(path).read()
    assert rows[0].key == make_key(PNG)
    assert all(isinstance(row, ImageRow | Dropped) for row in rows)
    assert 2 <= len(rows) <= 3


def huge_member(size):
    return raw_header("huge.png", size) + bytes(1024)


@pytest.mark.parametrize(
    ("reason", "rest"),
    [
        ("truncated archive", lambda member: member[:600]),
        ("truncated archive", lambda member: member[:100]),
        ("truncated archive", lambda member: b""),
        ("damaged archive", lambda member: b"x" * 512 + member),
        ("truncated archive", lambda _: huge_member(2**62)),
        ("damaged archive", lambda _: huge_member(-5)),
    ],
    ids=["a cut member", "a cut header", "no end", "noise", "an absurd size", "a negative size"],
)
def test_a_damaged_tar_gives_whole_samples_and_reports_the_rest(tmp_path, reason, rest) -> None:
    whole = write_tar(tmp_path / "whole.tar", ("a.png", PNG), ("b.png", picture(2))).read_bytes()
    path = tmp_path / "a.tar"
    path.write_bytes(whole[:PADDED] + rest(whole[PADDED:]))
    assert tars(path).reasons() == {"a.tar": reason}
    assert tars(path).keys() == {"a.tar/a": [make_key(PNG)]}


def test_gzipped_tars_are_dropped_and_one_alone_is_refused(tmp_path) -> None:
    good = write_tar(tmp_path / "d/a.tar", ("a.png", PNG))
    names = ("b.tar.gz", "c.tgz", "d.tar")
    for name in names:
        (tmp_path / "d" / name).write_bytes(gzip.compress(good.read_bytes(), mtime=0))
    assert tars(tmp_path / "d").reasons() == dict.fromkeys(names, "gzipped archive")
    path = tmp_path / "d/b.tar.gz"
    assert recognise_source(str(path)) == f"webdataset:{path}"
    with pytest.raises(SourceError, match=r"b\.tar\.gz: gzipped archive: unpack it first"):
        tars(path).items()


def test_nothing_to_read_is_a_source_error(tmp_path) -> None:
    for data in (b"", b"this is no tar" * 100, bytes(10240)):
        (tmp_path / "a.tar").write_bytes(data)
        with pytest.raises(SourceError, match=r"a\.tar: "):
            tars(tmp_path / "a.tar").items()
    for place in ("missing.tar", "nothing-*.tar", "nothing-{0..3}.tar", "odd://x/a.tar"):
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
def test_patterns_and_folders_list_their_tars_in_order(tmp_path, pattern, names) -> None:
    write_shards(tmp_path / "d")
    write_tar(tmp_path / "d/deeper/z.TAR", ("z.png", picture(9)))
    write_tar(tmp_path / "x-[0].tar", ("x.png", picture(9)))
    (tmp_path / "d/s-folder.tar").mkdir()
    assert tars(tmp_path / pattern).names() == names


def test_a_tar_that_a_pattern_names_and_that_is_missing_is_dropped(tmp_path) -> None:
    write_shards(tmp_path)
    (tmp_path / "s-001.tar").unlink()
    os.mkfifo(tmp_path / "s-001.tar")
    assert tars(f"{tmp_path}/s-{{000..003}}.tar").reasons() == {
        "s-001.tar": "not a regular file",
        "s-003.tar": "missing file",
    }


def test_tars_in_a_remote_store(tmp_path) -> None:
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


def test_tars_are_recognised_by_name_and_folders_by_what_they_hold(tmp_path) -> None:
    write_shards(tmp_path, 1)
    for place in (f"{tmp_path}/s-{{000..011}}.tar", "s3://bucket/a.TAR", str(tmp_path)):
        assert recognise_source(place) == f"webdataset:{place}"
    (tmp_path / "a.png").write_bytes(b"")
    assert recognise_source(str(tmp_path)) == f"folder:{tmp_path}"


@pytest.mark.parametrize(
    ("stem", "member", "captions"),
    [
        ("latin", ("latin.txt", b"caf\xe9"), ()),
        ("cut", ("cut.json", b'{"caption": '), ()),
        ("empty", ("empty.json", b""), ()),
        ("deep", ("deep.json", b"[" * 100_000), ()),
        ("nan", ("nan.json", b'{"caption": NaN, "text": "A dog."}'), ("A dog.",)),
        ("group", ("group.json", b'{"caption": "A dog.", "group": [1]}'), ("A dog.",)),
        ("list", ("list.json", b"[1]"), ()),
    ],
)
def test_a_bad_text_costs_the_text(tmp_path, stem, member, captions) -> None:
    row = one_tar(tmp_path, (f"{stem}.png", PNG), member).row()
    assert (row.key, row.captions) == (make_key(PNG), captions)
    assert row.reason == "a field was not read"
    assert member[0].partition(".")[0] in row.detail
