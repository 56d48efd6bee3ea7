"""An evaluation of captions as a flow run of a real Prefect server."""

import json
from pathlib import Path

from tests.fixtures.prefect_server import PrefectServer

CODE = """
import sys
from pairwright.flows.compare_captions import compare_captions
compare_captions(sys.argv[1], sys.argv[2], metrics=["bleu", "cider-d"])
"""


def test_scores_are_a_table_of_the_run(prefect: PrefectServer, tmp_path: Path) -> None:
    texts = [{"id": str(number), "text": f"a {word} cup is gone"} for number, word in enumerate(["red", "blue"])]
    paths = [tmp_path / name for name in ("predictions.jsonl", "references.jsonl")]
    for path in paths:
        path.write_text("".join(json.dumps(text) + "\n" for text in texts))
    done = prefect.run("python", "-c", CODE, *paths)
    assert done.returncode == 0, done.stderr
    (run,) = prefect.flow_runs(f"evaluate-{paths[0]}")
    assert run["state_type"] == "COMPLETED"
    assert "BLEU-4 100.0" in run["state"]["message"]
    (artifact,) = prefect.ask("artifacts", artifacts={"key": {"any_": ["caption-scores"]}})
    assert "2 items, 2 references; protocol coco" in artifact["description"]
    scores = {row["metric"]: row["score"] for row in json.loads(artifact["data"])}
    assert abs(scores["BLEU-1"] - 1) < 1e-9

    asked = CODE.replace('"cider-d"', '"spice"')  # CoreNLP's files are fetched by nobody unasked
    prefect.run("python", "-c", asked, *paths, PATH="")
    skipped = prefect.flow_runs(f"evaluate-{paths[0]}")[-1]
    assert (skipped["state_type"], "spice was skipped: " in skipped["state"]["message"]) == ("FAILED", True)

    paths[0].write_text("")
    assert prefect.run("python", "-c", CODE, *paths).returncode != 0
    failed = prefect.flow_runs(f"evaluate-{paths[0]}")[-1]
    assert failed["state_type"] == "FAILED"
