"""An evaluation of a model as a flow run of a real Prefect server."""

import json
from pathlib import Path

from tests.fixtures.benchmarks import write_folder
from tests.fixtures.chat_server import chat_server
from tests.fixtures.prefect_server import PrefectServer

CODE = """
import sys
from pairwright.flows.score_model import score_model
score_model("tiny", "nlvr2", data=sys.argv[1], to=sys.argv[2], server=sys.argv[3])
"""


def test_scores_are_a_table_of_the_run(prefect: PrefectServer, tmp_path: Path) -> None:
    lines = [
        {
            "image": ["a.png", "b.png"],
            "text": f'Is the statement "{n} dogs" True or False?',
            "answer": a,
            "question_id": n,
        }
        for n, a in enumerate(["True", "False"])
    ]
    folder = write_folder(tmp_path, images=["a.png", "b.png"], files={}, lines={"NLVR2.jsonl": lines})
    with chat_server(lambda _: "True") as server:
        done = prefect.run("python", "-c", CODE, folder, tmp_path / "scores.json", server.url)
    assert done.returncode == 0, done.stderr
    (run,) = prefect.flow_runs("evaluate-tiny-on-nlvr2")
    assert (run["state_type"], run["state"]["message"]) == ("COMPLETED", "accuracy 0.500, consistency 0.500")
    (artifact,) = prefect.ask("artifacts", artifacts={"key": {"any_": ["scores-nlvr2"]}})
    assert "2 of 2 items, 2 questions" in artifact["description"]
    assert [row["value"] for row in json.loads(artifact["data"])] == [0.5, 0.5]
