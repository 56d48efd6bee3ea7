"""Say in words what a build left undone and how to go on: the same lines in `status`, at a build's end and in Prefect.

Reads counts and verdicts; writes nothing.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence

from pairwright.tasks.store.gates import Verdict
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.pool import Outcome, ShardFailed
from pairwright.tasks.store.stage import Planned


def say_owed(counts: Sequence[Counts], dataset: str) -> Iterator[str]:
    """Yield a line for each stage that owes rows: how many, why, and the command that retries only those."""
    for count in counts:
        if not count.failed and not count.pending:
            continue
        parts = [f"{count.failed:,} rows failed: {say_reasons(count.failures)}"] if count.failed else []
        if count.pending:
            parts.append(f"{count.pending:,} rows not done")
        command = retry_command(dataset, count.stage, {} if count.pending else count.failures)
        yield f"{count.stage}: {'; '.join(parts)}. Retry: {command}"


def say_shard(planned: Planned, outcome: Outcome) -> str:
    """Say what failed of a shard, why, and the command that retries only that; empty where nothing did."""
    shard, result, stage = outcome.shard, outcome.result, planned.stage.name
    rows = shard.stop - shard.start
    if isinstance(result, ShardFailed):
        retry = retry_command(shard.folder.url, stage, {})
        return f"{stage}: none of {rows:,} rows is done: {result.error}. Retry: {retry}"
    if not result.failures:
        return ""
    failed, retry = sum(result.failures.values()), retry_command(shard.folder.url, stage, result.failures)
    return f"{stage}: {failed:,} of {rows:,} rows failed: {say_reasons(result.failures)}. Retry: {retry}"


def say_reasons(reasons: Mapping[str, int]) -> str:
    """Return reasons with their numbers, the most frequent first."""
    return ", ".join(f"{reason} ({number:,})" for reason, number in sorted(reasons.items(), key=lambda one: -one[1]))


def retry_command(dataset: str, stage: str, reasons: Mapping[str, int]) -> str:
    """Return the command that retries what one stage owes; only for its reason where it has a single one."""
    words = ["pairwright", "resume", dataset, "--stage", stage]
    return shlex.join([*words, "--reason", *reasons] if len(reasons) == 1 else words)


def say_held(verdict: Verdict | None, current: int, dataset: str) -> Iterator[str]:
    """Yield why the last build was held back, and what to do; nothing where it was not.

    Args:
        verdict: how it was judged.
        current: the number of the version that stays; 0: there is none.
        dataset: its folder.
    """
    if verdict is None or not verdict.held:
        return
    stays = f"version {current} stays current" if current else "there is no version yet"
    yield f"No version was published, for it does not pass its profile's gates; {stays}:"
    yield from (f"  {gate.say()}" for gate in verdict.failed)
    name = verdict.failed[0].gate
    place = shlex.quote(dataset)
    yield (
        f"See why: pairwright status {place}. Publish it all the same: pairwright publish {place}. "
        f"Or with another bound from now on: pairwright resume {place} --set gates.{name}=..."
    )
