"""Measure what the checks make of six scripted writers, on photographs with planted changes.

Run with ``make bench BENCH=audit``. Each writer describes the same planted pairs, and judges that
answer rightly with probability 0.9, 0.8 and 0.7 judge its texts, claim by claim. The table has the
shares of true and of false texts that are kept by each check, and by all together. The photographs
are those that installed packages ship, and parts of them; no check was tuned on them.

Grounding is left out: CLIP's weights cannot be had without a download.
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from skimage.feature import hog

import pairwright as pw
from pairwright.tasks.audit.measure_audit import Share, Worth
from pairwright.tasks.images.decode import decode_rgb
from pairwright.tasks.pages.charts import Proportion
from tests.bench.audit_writers import WRITERS, ScriptedModels, judge_named
from tests.bench.truth_style import tell_apart
from tests.fixtures.chat_server import chat_server
from tests.soak.test_planted_truth import photographs

PHOTOGRAPHS = 60
ACCURACIES = (0.9, 0.8, 0.7)
MIN_TRUE_KEPT = 0.9
MAX_FALSE_KEPT = 0.1
MAX_TOLD = 0.55
"""Share of planted photographs of which one image tells whether it is the first of its pair."""
SETTINGS = (
    *("captions.writer=served", "differences.writer=served", "differences.model=chat"),
    *("controls.enabled=true", "confirming.enabled=true"),
    *("planted.max_side=640", "planted.samples_per_pixel=4", "planted.no_change_share=0.15"),
)


def main(arguments: Sequence[str]) -> int:
    """Print the table; the arguments are a folder for the datasets and a number of photographs."""
    count = int(arguments[1]) if len(arguments) > 1 else PHOTOGRAPHS
    if arguments:
        return measure_all(Path(arguments[0]), count)
    with tempfile.TemporaryDirectory() as folder:
        return measure_all(Path(folder), count)


def measure_all(folder: Path, count: int) -> int:
    """Audit each writer with each judge; return 1 if an aim is missed at the best judge."""
    source = folder / "photographs"
    write_photographs(source, count)
    album = folder / "album"
    missed = False
    models = ScriptedModels(album / "audit")
    names = [*WRITERS, *(judge_named(accuracy) for accuracy in ACCURACIES)]
    with chat_server(models.answer, models=names) as server:
        for accuracy in ACCURACIES:
            print(f"\njudge that is right with probability {accuracy:g}")
            for writer in WRITERS:
                settings = [
                    *SETTINGS,
                    f"models.chat.endpoint={server.url}",
                    f"models.chat.model={writer}",
                    f"models.judge.endpoint={server.url}",
                    f"models.judge.model={judge_named(accuracy)}",
                ]
                dataset = pw.build(str(source), out=str(album), settings=settings, until="sources")
                worth = dataset.audit(pairs=2 * count).worth
                print("\n".join(describe_worth(writer, worth)), flush=True)
                if accuracy == ACCURACIES[0]:
                    missed |= misses_aims(worth)
    hits, of = tell_first(pw.open(album / "audit"))
    print(f"\nfirst of its pair told from one image: {hits} of {of} = {hits / of:.0%}")
    return int(missed or Proportion(hits, of).interval()[0] > MAX_TOLD)


def tell_first(dataset: pw.Dataset) -> tuple[int, int]:
    """Return in how many planted photographs image statistics find the first of the pair.

    Of how many, half of which are. The folds are over photographs.
    """
    images = {row.key: row for row in dataset["images"].rows()}
    features: list[list[float]] = []
    labels: list[int] = []
    worlds: list[str] = []
    for pair in dataset["pairs"].rows():
        photograph = images[pair.first].group
        if photograph in worlds:
            continue  # one pair of a photograph, so that half are first
        for is_first, key in ((1, pair.first), (0, pair.second)):
            features.append(describe_pixels(images[key].image))
            labels.append(is_first)
            worlds.append(photograph)
    return tell_apart("image statistics", features, labels, worlds)


def describe_pixels(data: bytes) -> list[float]:
    """Return gradients, colours and a thumbnail of an image."""
    image = Image.fromarray(decode_rgb(data)).resize((128, 128))
    levels = np.asarray(image) / 255
    gradients = hog(levels.mean(axis=2), pixels_per_cell=(16, 16), cells_per_block=(1, 1))
    colours = [np.histogram(levels[..., band], 16, (0, 1))[0] / 1000 for band in range(3)]
    thumbnail = np.asarray(image.resize((12, 12))).ravel() / 255
    return [float(value) for value in np.concatenate([gradients, *colours, thumbnail])]


def write_photographs(folder: Path, count: int) -> None:
    """Write the photographs, as PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, pixels) in enumerate(photographs()):
        path = folder / f"{name}.png"
        if number < count and not path.exists():
            Image.fromarray(pixels).save(path)


def describe_worth(writer: str, worth: Worth) -> Iterator[str]:
    """Yield the lines of a writer: its texts, each check, all checks."""
    yield (
        f"  {writer}: {worth.written.hits} true and {worth.written.of - worth.written.hits} "
        f"false texts, {worth.unclear} unclear, {worth.undescribed} pairs without a text"
    )
    for check in worth.checks:
        yield f"    {check.name:<12}{_say(check.true_kept):>28}{_say(check.false_kept):>28}"
    yield f"    {'all checks':<12}{_say(worth.true_kept):>28}{_say(worth.false_kept):>28}"


def _say(share: Share) -> str:
    if share.value is None:
        return "-"
    return f"{share.hits} of {share.of} = {share.value:.0%}"


def misses_aims(worth: Worth) -> bool:
    """Return whether too few true texts are kept, or too many false ones."""
    true_kept, false_kept = worth.true_kept.value, worth.false_kept.value
    keeps_few_true = true_kept is not None and true_kept < MIN_TRUE_KEPT
    keeps_many_false = false_kept is not None and false_kept > MAX_FALSE_KEPT
    return keeps_few_true or keeps_many_false


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
