"""The verbs of the command line in the order and the panels of its help.

A verb's module is loaded when it is used.
"""

from typing import NamedTuple


class Verb(NamedTuple):
    """Entry of the command line's help: a verb, its module, one line of help, its panel."""

    name: str
    module: str
    help: str
    panel: str


BUILD, LOOK, EXPORT, OPERATE = "Build", "Look", "Export and train", "Operate"

VERBS = (
    Verb("build", "build", "Build a dataset, or continue an earlier build of it.", BUILD),
    Verb("resume", "build", "Finish the unfinished rows of a dataset.", BUILD),
    Verb(
        "plan",
        "build",
        "Show, per stage, what a build would do: rows, calls, tokens, time, disk.",
        BUILD,
    ),
    Verb(
        "fetch",
        "build",
        "Fetch and verify all weights that a build with the same options loads.",
        BUILD,
    ),
    Verb("refilter", "build", "Try other mining thresholds on the stored similarities.", BUILD),
    Verb(
        "status",
        "look",
        "Show, per stage, what is done, dropped, failed and pending, and why.",
        LOOK,
    ),
    Verb(
        "report", "look", "Write pages that show a dataset: pairs, texts, removals, charts.", LOOK
    ),
    Verb(
        "view",
        "look",
        "Look at a dataset in the browser: search, filter, accept, reject and edit.",
        LOOK,
    ),
    Verb("decide", "look", "Store which rows people accepted, rejected or edited.", LOOK),
    Verb(
        "audit", "audit", "Measure how far to trust the texts about a dataset's photographs.", LOOK
    ),
    Verb("versions", "versions", "List the versions of a dataset.", LOOK),
    Verb("diff", "versions", "Compare two versions.", LOOK),
    Verb(
        "lineage",
        "versions",
        "Show everything made from a row, and everything it was made from.",
        LOOK,
    ),
    Verb("sources", "look", "List the kinds of sources that a build can read.", LOOK),
    Verb("models", "look", "List the models that a profile can name, by place.", LOOK),
    Verb("settings", "look", "List the settings for `--set` and profiles.", LOOK),
    Verb(
        "prompts",
        "prompts",
        "List what models are asked, and the wordings of composed texts, with their variables.",
        LOOK,
    ),
    Verb("profiles", "look", "List the profiles that come with Pairwright.", LOOK),
    Verb("export", "export", "Export a dataset in the format of another program.", EXPORT),
    Verb("formats", "export", "List the formats of `export`, with what each cannot hold.", EXPORT),
    Verb(
        "train", "train", "Train a vision-language model, or NAMC, on a table of a dataset.", EXPORT
    ),
    Verb("iterate", "train", "Train in rounds on the model's own texts.", EXPORT),
    Verb("recipes", "train", "List training recipes, with the memory that they need.", EXPORT),
    Verb("runs", "train", "List the training runs of a dataset.", EXPORT),
    Verb(
        "evaluate", "evaluate", "Score texts against references, and models on benchmarks.", EXPORT
    ),
    Verb(
        "reproduce",
        "reproduce",
        "Make a paper's tables: build its datasets, train its arms, ask its benchmarks.",
        EXPORT,
    ),
    Verb("doctor", "versions", "Check versions, devices, disk, weights and servers.", OPERATE),
    Verb("schedule", "versions", "Update a dataset on a schedule.", OPERATE),
    Verb("publish", "versions", "Publish the state of a dataset as its newest version.", OPERATE),
    Verb("remove", "versions", "Remove images on request.", OPERATE),
    Verb(
        "gc",
        "versions",
        "Delete files that neither a kept version nor the current state needs.",
        OPERATE,
    ),
)
