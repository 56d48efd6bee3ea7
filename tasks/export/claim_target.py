"""Say whether an export may take a folder: a free name, an empty folder, or an earlier export and nothing else."""

import json
from pathlib import Path

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.export.formats import FORMATS

MARKER = ".pairwright-export.json"
README = "README.md"


def check_target(target: Path) -> None:
    """Refuse a target that is not a folder of ours, an empty one, or a free name.

    Raises:
        ConfigError: it is something else.
    """
    if not target.exists():
        return
    if not target.is_dir():
        raise ConfigError(f"{target}: is not a folder; give a new name with --to")
    names = {path.name for path in target.iterdir()}
    own = _owned(target / MARKER)
    if names and (not own or names - own):
        other = sorted(names - own)[:3] or sorted(names)[:3]
        raise ConfigError(
            f"{target}: is not empty and no earlier export (it holds {', '.join(other)}); give a new name with --to"
        )


def write_marker(folder: Path, *, form: str, version: str, rows: int) -> None:
    """Write the file by which a later export knows that it may replace the folder."""
    marker = {"made_by": "pairwright", "format": form, "version": version, "rows": rows}
    (folder / MARKER).write_text(json.dumps(marker) + "\n", encoding="utf-8")


def _owned(marker: Path) -> set[str]:
    """Return the names that the export of this marker may have made; none: it is no export."""
    try:
        form = FORMATS.get(json.loads(marker.read_text(encoding="utf-8"))["format"])
    except (OSError, ValueError, KeyError, TypeError):
        return set()
    return {MARKER, README, *form.owns} if form else set()
