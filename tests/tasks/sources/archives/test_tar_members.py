"""Any tar that Python writes is walked as Python reads it; hostile ones are in ``test_webdataset``."""

import gzip
import io
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairwright.tasks.sources.archives.tar_members import DamagedArchiveError, GzippedTar, open_tar, walk_members
from tests.fixtures.tars import entry

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=150).map(
    lambda text: "x" + text.replace("/", "_").replace("..", "_")
)
FORMATS = st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])


@settings(max_examples=60)
@given(st.dictionaries(NAMES, st.binary(max_size=1500), max_size=8), FORMATS, st.booleans())
def test_any_tar_is_walked_as_python_reads_it(files, layout, gzipped):
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=layout) as tar:
        for name, data in files.items():
            info, _ = entry(name, data)
            tar.addfile(info, io.BytesIO(data))
    whole = sink.getvalue()
    file = io.BytesIO(gzip.compress(whole, 1) if gzipped else whole)
    medium = open_tar(file, len(file.getvalue()))
    members = list(walk_members(medium))
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        expected = [(info.name, info.offset_data, info.size, "") for info in tar]
    assert [(m.name, m.offset, m.size, m.refused) for m in members] == expected
    assert [medium.read_at(m.offset, m.size) for m in reversed(members)] == list(files.values())[::-1]


def test_a_gzipped_tar_may_unpack_to_a_hundred_times_its_size_but_to_a_gigabyte_at_least(monkeypatch):
    monkeypatch.setattr("pairwright.tasks.sources.archives.tar_members.MIN_UNPACKED", 1000)
    data = gzip.compress(bytes(4 << 20))  # 4 MiB of zeros in 4 KiB
    medium = GzippedTar(io.BytesIO(data), len(data))
    assert medium.reaches(100 * len(data))
    with pytest.raises(DamagedArchiveError, match=str(100 * len(data))):
        medium.reaches(4 << 20)
