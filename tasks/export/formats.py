"""All forms of export, and the marker of an export's folder, which a later export may replace."""

import json
from pathlib import Path

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.plugins import Registry
from pairwright.schemas.suggest import suggest
from pairwright.tasks.export.form import Form
from pairwright.tasks.export.forms import (
    edit,
    fiftyone,
    grpo,
    hf,
    label_studio,
    llamafactory,
    llava,
    ms_swift,
    omniedit,
    openai_batch,
    rlaif_v,
    trl,
    webdataset,
)
from pairwright.tasks.export.forms.table import table_form
from pairwright.tasks.store.manifest import MARKER, README, list_files

_FORMS = (
    *(hf, trl, llamafactory, ms_swift, rlaif_v, llava, webdataset, openai_batch),
    *(grpo, edit, omniedit, fiftyone, label_studio),
)
FORMATS = Registry("formats", Form, (module.FORM for module in _FORMS))


def find_form(name: str) -> Form:
    """Return a form of export by name; ``ConfigError``: unknown name."""
    if name not in FORMATS:
        raise ConfigError(f"--format {name}: no such format; {suggest(name, FORMATS)}")
    return FORMATS[name]


def choose_form(name: str, table: str = "") -> Form:
    """Return the form for a table; ``ConfigError``: the form holds another table."""
    form = find_form(name)
    if table in ("", form.reads):
        return form
    if name != hf.FORM.name:
        raise ConfigError(
            f"--format {name}: holds {form.reads} only; --table {table} needs --format hf"
        )
    return table_form(table)


def check_target(target: Path) -> None:
    """Raise ``ConfigError`` unless a target is an earlier export, empty, or does not exist."""
    if not target.exists():
        return
    if not target.is_dir():
        raise ConfigError(f"{target}: is not a folder; give a new name with --to")
    names = {path.name for path in target.iterdir()}
    try:
        marker = json.loads((target / MARKER).read_text(encoding="utf-8"))
        form = FORMATS.get(marker["format"])
    except (OSError, ValueError, KeyError, TypeError):
        form = None
    if form:
        names -= {MARKER, README, *form.owns}
    if names:
        examples = ", ".join(sorted(names)[:3])
        raise ConfigError(
            f"{target}: is neither empty nor an earlier export (it holds {examples}); "
            "give a new name with --to"
        )


def write_marker(folder: Path, *, form: str, version: str, rows: int) -> None:
    """Write the folder's manifest, last; it allows a later export to replace the folder."""
    marker = {
        "made_by": "pairwright",
        "format": form,
        "version": version,
        "rows": rows,
        "files": list_files(folder),
    }
    (folder / MARKER).write_text(json.dumps(marker) + "\n", encoding="utf-8")
