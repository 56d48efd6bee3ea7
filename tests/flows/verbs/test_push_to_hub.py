"""`--push-to-hub` of `export` and `train` as a user calls it, against a stand-in of the Hub, whole
and cut midway."""

import hashlib
import json
import shutil
from collections import Counter

import datasets
import huggingface_hub
import pytest

from tests.fixtures.command import run, words_of
from tests.fixtures.exports import files_of
from tests.fixtures.file_server import use_as_hub
from tests.fixtures.hub_server import LARGE, READER, TOKEN, Repository, serving_hub

NAME = "owner/pairs"
NAMC = {
    "optimiser.max_steps": 2,
    "optimiser.per_device_train_batch_size": 4,
    "data.eval_split": "",
    "namc.max_new_tokens": 8,
}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    with serving_hub() as running:
        use_as_hub(monkeypatch, running, tmp_path / "cache" / "hub")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield running


@pytest.fixture
def push(rendered, tmp_path, capsys):
    def call(*words, name=NAME):
        """Return the verb's exit code and all that it said."""
        code = run("export", rendered, "--to", tmp_path / "out", "--push-to-hub", name, *words)
        said = capsys.readouterr()
        assert TOKEN not in said.out + said.err
        assert "X-Amz" not in said.out + said.err
        return code, said.out + said.err

    return call


def once(files: dict[str, bytes]) -> Counter[str]:
    """Return how often each large object of a folder comes when each file is sent once."""
    return Counter(
        hashlib.sha256(data).hexdigest() for name, data in files.items() if name.endswith(LARGE)
    )


def test_the_folder_arrives_byte_for_byte_in_one_commit_and_reads_back(
    hub, push, tmp_path, monkeypatch
) -> None:
    code, said = push("--private")
    files = files_of(tmp_path / "out")
    assert code == 0
    assert f"{len(files)} files (" in said
    assert f"{hub.address}/datasets/{NAME} (private)" in said
    repository = hub.repositories[NAME]
    assert repository.files == files
    assert repository.private
    assert len(repository.commits) == 1
    assert {".pairwright-export.json", "README.md"} <= set(repository.commits[0])
    assert hub.received == once(files)
    read = huggingface_hub.snapshot_download(NAME, repo_type="dataset", local_dir=tmp_path / "read")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    loaded = datasets.load_dataset(read, cache_dir=str(tmp_path / "datasets"))
    assert sum(loaded.num_rows.values()) > 0
    assert TOKEN.encode() not in b"".join(files_of(tmp_path).values())


def test_pushed_again_only_what_changed_goes_out(hub, push, tmp_path) -> None:
    push()
    before = files_of(tmp_path / "out")
    code, said = push()
    assert (code, len(hub.repositories[NAME].commits)) == (0, 1)
    assert f"{len(before)} files" in said
    hub.repositories[NAME].branches["main"]["LICENSE"] = b"by hand"
    code, said = push("--format", "llamafactory")
    now = files_of(tmp_path / "out")
    assert code == 0
    assert f"; {len(before.keys() - now)} " in said
    assert hub.repositories[NAME].files == now | {"LICENSE": b"by hand"}


def test_a_hub_that_goes_away_is_gone_on_with(hub, push, tmp_path, monkeypatch) -> None:
    answers, put = [], hub._put

    def put_and_die(*request):
        answers.append(put(*request))
        hub.dead = len(answers) >= 2
        return answers[-1]

    monkeypatch.setattr(hub, "_put", put_and_die)
    code, said = push("--format", "llamafactory")
    assert code == 1
    assert "same command" in said
    assert not hub.repositories[NAME].commits
    hub.dead = False
    monkeypatch.setattr(hub, "_put", put)
    assert push("--format", "llamafactory")[0] == 0
    assert hub.repositories[NAME].files == files_of(tmp_path / "out")
    assert set(hub.received.values()) == {1}
    hub.dead = True
    assert push()[0] == 1


def test_a_branch_of_its_own(hub, push, tmp_path) -> None:
    code, said = push("--revision", "v2/a")
    assert code == 0
    assert f"/datasets/{NAME}/tree/v2/a (public)" in said
    assert hub.repositories[NAME].files == {}
    files = files_of(tmp_path / "out")
    assert hub.repositories[NAME].branches["v2/a"].keys() == {*files, ".gitattributes"}
    before = hub.received.total()
    assert push("--revision", "v2/a")[0] == 0
    assert hub.received.total() == before, "nothing was sent again"


@pytest.mark.parametrize(
    ("token", "name", "words", "message"),
    [
        ("", NAME, [], "`hf auth login`, or set HF_TOKEN"),
        ("hf_unknown", NAME, [], "Log in"),
        (READER, NAME, [], "owner "),
        (TOKEN, "somebody/pairs", [], "somebody "),
        (TOKEN, "pairs", [], "OWNER/NAME"),
        (TOKEN, "owner/pa irs", [], "owner/pa irs: "),
        (TOKEN, "owner/photographs", [], "(a.txt, b.txt)"),
        (TOKEN, "owner/open", ["--private"], "owner/open"),
    ],
)
def test_what_is_refused_says_what_to_do(
    hub, push, monkeypatch, token, name, words, message
) -> None:
    files = {".gitattributes": b"", "a.txt": b"a", "b.txt": b"b"}
    hub.repositories = {
        "owner/photographs": Repository(branches={"main": dict(files)}),
        "owner/open": Repository(),
    }
    monkeypatch.setenv("HF_TOKEN", token)
    code, said = push(*words, name=name)
    assert code == 2
    assert message in said
    assert not token or token not in said
    assert hub.repositories["owner/photographs"].branches["main"] == files
    assert not hub.received


def test_a_finished_model_is_pushed_and_pushed_again(hub, rendered, tmp_path, capsys) -> None:
    """Of an earlier model what is no longer there goes; what people have added stays."""
    dataset = shutil.copytree(rendered, tmp_path / "data")
    train = ["train", dataset, "--objective", "namc", *words_of(NAMC), "--push-to-hub"]
    assert run(*train, "owner/captioner", "--private") == 0
    files = files_of(dataset / "runs/namc/checkpoint")
    repository = hub.repositories["owner/captioner"]
    assert repository.files == files
    assert repository.private
    assert {"README.md", "manifest.json", "model.safetensors", "words.json"} < files.keys()
    assert f"{hub.address}/owner/captioner (private)" in capsys.readouterr().out
    manifest = json.loads(files["manifest.json"])
    manifest["files"]["old.json"] = manifest["files"]["namc.json"]
    repository.branches["main"]["manifest.json"] = json.dumps(manifest).encode()
    repository.branches["main"] |= {"old.json": b"{}", "notes.json": b"{}"}
    assert run(*train, "owner/captioner") == 0
    assert repository.files == files | {"notes.json": b"{}"}
    hub.repositories["owner/pairs"] = Repository(branches={"main": {"data.parquet": b"a"}})
    capsys.readouterr()
    assert run(*train, "owner/pairs", "--name", "other") == 2
    assert "holds files that Pairwright did not make" in capsys.readouterr().err
    assert not (dataset / "runs/other").exists(), "it is refused before anything is trained"
