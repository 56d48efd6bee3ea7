"""The verbs of the command line in the order and the panels of its help. A verb's module is loaded when it is used."""

from typing import NamedTuple


class Verb(NamedTuple):
    """Entry of the command line's help: a verb, the module that holds it, one line of help, its panel."""

    name: str
    module: str
    help: str
    panel: str


BUILD, LOOK, EXPORT, OPERATE = "Build", "Look", "Export and train", "Operate"

VERBS = (
    Verb("build", "build", "Build a dataset, or do what an earlier build of it still owes.", BUILD),
    Verb("resume", "build", "Finish what a dataset still owes.", BUILD),
    Verb("plan", "build", "Show, per stage, what a build would do: rows, calls, tokens, time, disk.", BUILD),
    Verb("fetch", "build", "Fetch and verify all weights that a build with the same options loads.", BUILD),
    Verb("refilter", "build", "Try other mining thresholds on the stored similarities.", BUILD),
    Verb("status", "look", "Show, per stage, what is done, dropped, failed and owed, and why.", LOOK),
    Verb("report", "look", "Write pages that show a dataset: pairs, texts, removals, charts.", LOOK),
    Verb("view", "look", "Look at a dataset in the browser: search, filter, accept, reject and edit.", LOOK),
    Verb("decide", "look", "Store which rows people accepted, rejected or edited.", LOOK),
    Verb("versions", "versions", "List the versions of a dataset.", LOOK),
    Verb("diff", "versions", "Compare two versions.", LOOK),
    Verb("lineage", "versions", "Show all that was made of a row and all it was made from.", LOOK),
    Verb("sources", "look", "List the kinds of sources that a build can read.", LOOK),
    Verb("settings", "look", "List the settings that `--set` and profiles take.", LOOK),
    Verb("profiles", "look", "List the profiles that come with Pairwright.", LOOK),
    Verb("export", "export", "Write a dataset in a form that other programs read.", EXPORT),
    Verb("formats", "export", "List the formats of `export`: what each is, and what it cannot hold.", EXPORT),
    Verb("train", "train", "Train a vision-language model, or NAMC, on a table of a dataset.", EXPORT),
    Verb("iterate", "train", "Train in rounds on what the model itself writes.", EXPORT),
    Verb("recipes", "train", "List the recipes of trainings, with the memory that they need.", EXPORT),
    Verb("runs", "train", "List the training runs of a dataset.", EXPORT),
    Verb("evaluate", "evaluate", "Score texts against references, and models on benchmarks.", EXPORT),
    Verb("doctor", "versions", "Look at versions, devices, disk, weights and servers.", OPERATE),
    Verb("schedule", "versions", "Update a dataset at certain times.", OPERATE),
    Verb("publish", "versions", "Publish what a dataset holds as its newest version.", OPERATE),
    Verb("remove", "versions", "Remove images on request.", OPERATE),
    Verb("gc", "versions", "Delete what no kept version and not the present state needs.", OPERATE),
)
