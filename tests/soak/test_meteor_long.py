"""METEOR of some hundred items against pycocoevalcap's own class: each item's score and the corpus'."""

import random
import shutil

import pytest

from pairwright.tasks.evaluation.score_captions import measure_meteor

WORDS = (
    "the a red blue car cars automobile truck gone is are moving moved move man woman people person left right walks "
    "walking sidewalk street in of two no longer"
)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("java") is None, reason="no Java")
def test_meteor_equals_pycocoevalcap():
    from pycocoevalcap.meteor.meteor import Meteor

    rng = random.Random(1)

    def draw():
        return " ".join(rng.choices(WORDS.split(), k=rng.randint(1, 12)))

    predictions = [draw() for _ in range(300)] + ["the red car"] * 3 + [""]
    references = [[draw() for _ in range(rng.randint(1, 4))] for _ in range(300)] + [["the red car"]] * 3 + [["a car"]]
    measured = measure_meteor(predictions, references, limit_s=300)
    meteor = Meteor()
    whole, each = meteor.compute_score(dict(enumerate(references)), {n: [one] for n, one in enumerate(predictions)})
    meteor.meteor_p.stdout.close()  # which it leaves open
    meteor.meteor_p.stderr.close()
    assert measured.conclude(measured.statistics)[:, 0] == pytest.approx(each, abs=1e-9)
    assert measured.conclude(measured.statistics.sum(axis=0))[0] == pytest.approx(whole, abs=1e-9)
