"""Read members of one archive by their places, forward only, each archive opened once.

A gzipped tar stays open, at the place that was reached, until the thread reads another one: a worker that does one
shard after the other then unpacks each tar once, not once per shard.
"""

import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager

from pairwright.tasks.sources.archives.find_archives import Archive, Root
from pairwright.tasks.sources.archives.tar_members import DamagedArchiveError, GzippedTar, Medium, open_tar

Place = tuple[int, int]
"""Offset and size."""


class _Kept(threading.local):
    archive: tuple[str, Archive] | None = None
    medium: Medium | None = None


_kept = _Kept()


def read_members(root: Root, archive: Archive, wanted: Sequence[Sequence[Place]]) -> Iterator[list[bytes]]:
    """Yield the contents of each group of places, in the groups' order.

    Groups that lie together are handed on one by one; what lies apart is kept until its group is whole.

    Raises:
        DamagedArchiveError: the archive ends early, or cannot be unpacked.
    """
    places = sorted((*place, i, j) for i, group in enumerate(wanted) for j, place in enumerate(group))
    read: list[dict[int, bytes]] = [{} for _ in wanted]
    done = 0
    with _opened(root, archive) as medium:
        for offset, size, i, j in places:
            read[i][j] = medium.read_at(offset, size)
            if len(read[i][j]) < size:
                raise DamagedArchiveError("truncated archive", f"at byte {offset}")
            while done < len(wanted) and len(read[done]) == len(wanted[done]):
                yield [read[done][number] for number in range(len(wanted[done]))]
                read[done].clear()
                done += 1


def close_kept() -> None:
    """Close the gzipped tar that this thread keeps open."""
    if _kept.medium:
        _kept.medium.close()
    _kept.archive = _kept.medium = None


@contextmanager
def _opened(root: Root, archive: Archive) -> Generator[Medium]:
    if _kept.medium and _kept.archive == (root.path, archive):
        yield _kept.medium
        return
    medium = open_tar(root.open(archive.name), archive.size)
    if isinstance(medium, GzippedTar):
        close_kept()
        _kept.archive, _kept.medium = (root.path, archive), medium
        yield medium
        return
    with closing(medium):
        yield medium
