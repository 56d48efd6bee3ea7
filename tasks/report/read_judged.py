"""Read what a judge took for true of a dataset's preferences (``evaluate model --benchmark preferences``).

Reads ``judged/preferences.rows.jsonl`` of the dataset, a line per text that was asked about; what is torn or says
nothing is passed over.
"""

import json

from pairwright.tasks.store.files import Folder

JUDGED = "judged/preferences.json"
"""Where that benchmark writes its scores, unless it is told otherwise; its rows lie beside them."""
ROWS = "judged/preferences.rows.jsonl"
REJECTED = "_rejected"
"""How the question about a preference's rejected text ends."""
TAKEN = {"True": True, "False": False}


def read_judged(folder: Folder) -> dict[str, bool]:
    """Return, by preference, whether the judge took its rejected text for true.

    Raises:
        StoreError: the file cannot be read.
    """
    if not folder.exists(ROWS):
        return {}
    found: dict[str, bool] = {}
    for line in folder.read(ROWS).splitlines():
        try:
            row = json.loads(line)
            name, taken = row["name"], TAKEN.get(row["taken_for"])
        except (ValueError, KeyError, TypeError):
            continue
        if isinstance(name, str) and name.endswith(REJECTED) and taken is not None:
            found[name.removesuffix(REJECTED)] = taken
    return found
