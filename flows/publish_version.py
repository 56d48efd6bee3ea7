"""Publish a build as a version where its profile's gates hold; otherwise leave the last version current and say why."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pairwright.flows.version import open_present, open_version
from pairwright.schemas.config import BuildRecord
from pairwright.schemas.errors import StoreError
from pairwright.schemas.gates import GatesConfig
from pairwright.tasks.store.dataset import Build
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.gates import (
    Gate,
    Settled,
    Verdict,
    cannot_judge,
    judge_columns,
    judge_counts,
    judge_reasons,
    read_verdict,
    write_verdict,
)
from pairwright.tasks.store.snapshot import Snapshot, latest_snapshot, write_snapshot
from pairwright.tasks.store.stage import Planned


def publish_version(
    build: Build, done: Settled, *, record: BuildRecord, began: str, force: bool = False
) -> tuple[Snapshot | None, Verdict]:
    """Judge settled stages and publish them; return the newest version, if there is any, and how they were judged.

    Args:
        build: the opened dataset.
        done: its stages with their counts.
        record: what was asked for; its profile has the gates.
        began: when the source was listed.
        force: publish although a gate fails.
    """
    before = latest_snapshot(build.folder)
    counts = [count for _, count in done]
    gates = tuple(_judge(build, done, record.profile.gates, before))
    published = force or all(gate.holds for gate in gates)
    snapshot = write_snapshot(build, done, record=record) if published else before
    verdict = Verdict(
        began=began,
        ended=now(),
        complete=not any(count.failed or count.pending for count in counts),
        against=before.number if before else 0,
        version=snapshot.number if published and snapshot else 0,
        gates=gates,
    )
    write_verdict(build.folder, verdict)
    return snapshot, verdict


def publish_anyway(folder: Folder) -> tuple[Snapshot, Verdict]:
    """Publish what a dataset holds now, whatever its gates say.

    Raises:
        ConfigError: there is no dataset.
        StoreError: a file cannot be read or written.
    """
    earlier, present = read_verdict(folder), open_present(folder)
    with present.settled() as (build, done):
        began = earlier.began if earlier else now()
        snapshot, verdict = publish_version(build, done, record=present.record, began=began, force=True)
    assert snapshot is not None
    return snapshot, verdict


def now() -> str:
    """Return the time, to the microsecond, as verdicts state it."""
    return datetime.now(UTC).isoformat()


def _judge(build: Build, done: Settled, config: GatesConfig, before: Snapshot | None) -> Iterator[Gate]:
    counts = [count for _, count in done]
    yield from judge_counts(config, counts)
    if before is None:
        return
    old = before.content["stages"]
    yield from judge_reasons(config, {name: stage["counts"] for name, stage in old.items()}, counts)
    changed = [
        (planned, count)
        for planned, count in done
        if _said_of(build, planned)
        != {name: old.get(planned.stage.name, {}).get(name) for name in ("fingerprint", "parts")}
    ]
    if not changed or not (config.max_length_drift or config.max_similarity_drift):
        return
    try:
        with open_version(build.folder, before.number).settled() as earlier:
            yield from judge_columns(config, earlier, (build, changed))
    except StoreError as error:
        yield cannot_judge(config, str(error))


def _said_of(build: Build, planned: Planned) -> dict[str, Any]:
    """Return what a version would say of a stage's rows: where these are equal, so are the rows."""
    return {"fingerprint": planned.fingerprint, "parts": dict(build.ledger.live_parts(planned.stage.name))}
