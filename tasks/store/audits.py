"""Result of a dataset's last audit, DIR/audit/worth.json, and whether it still holds.

It holds for the writer and the checks that were audited: their settings, models and prompts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pairwright.schemas.checks import CHECK_TABLES
from pairwright.schemas.rows import make_key
from pairwright.tasks.store.files import Folder, read_sealed, seal
from pairwright.tasks.store.stage import Planned, hash_prompts, settings_parts

AUDIT = "audit"
WORTH = f"{AUDIT}/worth.json"
WRITER = "described"
MEND = "Audit it again: pairwright audit DIR"


@dataclass(frozen=True, kw_only=True)
class StoredAudit:
    """Result of an audit."""

    worth: Mapping[str, Any]
    """``tasks.audit.measure_audit.Worth`` as JSON."""
    mark: str
    """Hash of the audited writer and checks."""


def mark_writer(planned: Iterable[Planned]) -> str:
    """Return the hash of what writes and checks descriptions: settings, models and prompts."""
    names = {WRITER, *CHECK_TABLES}
    parts: list[str] = []
    for step in planned:
        if step.is_on and step.stage.name in names:
            prompts = hash_prompts(step.inputs, step.prompts)
            parts += settings_parts(step.stage, step.config, step.inputs, prompts)
    return make_key("audit", *parts)


def write_audit(folder: Folder, worth: Mapping[str, Any], *, mark: str) -> None:
    """Store the result of a dataset's audit; it replaces the last one."""
    folder.write(WORTH, seal({"mark": mark, "worth": worth}))


def read_audit(folder: Folder) -> StoredAudit | None:
    """Return the result of a dataset's last audit; ``None``: it has none.

    Raises ``StoreError`` for a damaged file.
    """
    if not folder.exists(WORTH):
        return None
    content = read_sealed(folder, WORTH, mend=MEND)
    return StoredAudit(worth=content["worth"], mark=str(content["mark"]))


def say_worth(worth: Mapping[str, Any]) -> str:
    """Return what the chosen texts are worth, in a sentence."""
    chosen = worth["chosen"]
    measured = f"Measured on {worth['pairs']:,} planted pairs"
    if chosen["value"] is None:
        return f"{measured}: no text passed all checks"
    low, high = chosen["interval"]
    return (
        f"{measured}: {chosen['value']:.0%} of the chosen texts are true ({low:.0%} to {high:.0%})"
    )
