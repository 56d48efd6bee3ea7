"""Grounding DINO through transformers' real loaders: which boxes are kept, of which tags, with which weights."""

import json
import pickle
import re
import shutil

import numpy as np
import pytest
import torch
from transformers import BertTokenizer

from pairwright.schemas.config import DetectionConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.rows import Box
from pairwright.tasks.models.batches import FIRST
from pairwright.tasks.models.grounding import detector as grounding_dino
from pairwright.tasks.models.grounding.detector import GroundingDino, boxes_of, pin_grounding_dino
from pairwright.tasks.models.grounding.fit_images import Fitted
from pairwright.tasks.models.grounding.network import Answer
from pairwright.tasks.models.grounding.pack_tags import Prompt, Span
from pairwright.tasks.models.prepare_ahead import Seen
from tests.fixtures.checkpoints import write_hub_cache
from tests.fixtures.grounding_checkpoints import write_grounding_folder
from tests.tasks.models.grounding.asking import NAMES, detect, detector, numbers
from tests.tasks.models.samples import photographs

PHOTOGRAPHS = photographs()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_grounding_folder(tmp_path_factory.mktemp("grounding-dino"))


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# Ten tokens: the frame, "a b .", "c ." and what fills up; scores of the second tag begin at token 4.
PROMPT = Prompt((101, 7, 8, 1012, 9, 1012, 102), (Span(3, 1, 3), Span(5, 4, 5)))
PIXELS = np.zeros((80, 160, 3), dtype=np.uint8)


def told(*rows):
    """Return an answer of ``(centre, size, scores)`` rows."""
    boxes = np.array([[*centre, *size] for centre, size, _ in rows], dtype=np.float32)
    return Answer(boxes, np.array([scores for *_, scores in rows], dtype=np.float32))


def kept(answer, **config):
    return [
        (box.tag, round(box.score, 4), *(round(corner, 3) for corner in (box.x0, box.y0, box.x1, box.y1)))
        for box in boxes_of(answer, PROMPT, Fitted(PIXELS, 400, 800), DetectionConfig(**config))
    ]


def test_a_box_is_of_the_tags_whose_own_words_score():
    answer = told(
        ((0.5, 0.5), (0.5, 0.5), [0, 0.1, 0.3, 0, 0.19, 0, 0]),  # the first tag's second word
        ((0.2, 0.2), (0.1, 0.1), [0, 0.4, 0.3, 0, 0.5, 0, 0]),  # both tags
        ((0.8, 0.8), (0.1, 0.1), [0, 0.24, 0.2, 0, 0.2, 0, 0]),  # both, but no token reaches 0.25
        ((0.8, 0.2), (0.1, 0.1), [0.9, 0.1, 0.1, 0.9, 0.1, 0.9, 0.9]),  # the frame and the stops: no tag
        ((0.2, 0.8), (0.1, 0.1), [0.3, 0.21, 0.1, 0, 0.1, 0, 0]),  # the frame lifts it above 0.25
    )
    assert kept(answer) == [
        (3, 0.4, 120, 60, 200, 100),
        (3, 0.3, 200, 100, 600, 300),
        (3, 0.21, 120, 300, 200, 340),
        (5, 0.5, 120, 60, 200, 100),
    ]
    assert kept(answer, box_threshold=0.95) == []


def test_digits_that_depend_on_the_size_of_a_batch_are_not_written():
    full = np.array([0, 0.31239, 0.3, 0, 0.5, 0, 0])
    one, other = (
        told(((0.5 + by, 0.5), (0.5, 0.5 + by), full + by), ((0.2, 0.2), (0.1, 0.1), np.full(7, 0.25 + by)))
        for by in (1e-7, 3e-6)
    )
    assert kept(one) == kept(other)
    assert len(kept(one)) == 4


def test_boxes_are_clipped_and_those_without_an_inside_are_dropped():
    full = [0, 0.9, 0.9, 0, 0, 0, 0]
    answer = told(
        ((0.0, 1.0), (0.5, 0.5), full),
        ((0.5, 0.5), (0.0, 0.5), full),
        ((0.5, 0.5), (0.5, 0.0), full),
        ((1.5, 0.5), (0.5, 0.5), full),
    )
    assert kept(answer) == [(3, 0.9, 0, 300, 200, 400)]


def test_of_boxes_that_overlap_the_best_of_each_tag_stays():
    # 0.4 x 0.4 shifted by 0.1 shares 0.3 x 0.4: 12 / 20 of the union; shifted by 0.2 it is 8 / 24.
    answer = told(
        ((0.3, 0.5), (0.4, 0.4), [0, 0.5, 0, 0, 0.9, 0, 0]),
        ((0.4, 0.5), (0.4, 0.4), [0, 0.6, 0, 0, 0.8, 0, 0]),
        ((0.5, 0.5), (0.4, 0.4), [0, 0.4, 0, 0, 0.7, 0, 0]),
    )
    assert [(tag, score) for tag, score, *_ in kept(answer)] == [(3, 0.6), (5, 0.9), (5, 0.7)]
    assert [(tag, score) for tag, score, *_ in kept(answer, max_iou=0.3)] == [(3, 0.6), (5, 0.9)]
    assert len(kept(answer, max_iou=0.7)) == 6


HOSTILE = (
    "", ".", "?", "[SEP]", "[MASK]", "cat . dog .", "cat [SEP] dog", "\n\n", "\x00", "z" * 10_000, "cat " * 10_000,
    "中", "猫と犬", "\ud800", "🦄", "\u202e dog", "'); DROP TABLE boxes; --", "{}", "%s", "[CLS]" * 99,
)  # fmt: skip


def test_hostile_tags_do_not_move_others(folder):
    made = detector(folder, box_threshold=0.3, text_threshold=0.2)
    image = PHOTOGRAPHS["china"]
    found = detect(made, [image, image], [[name, "cat"] for name in ("[SEP]", "cat . dog .")])
    wanted = detect(made, [image, image], [["[ sep ]", "cat"], ["cat dog", "cat"]])
    assert found == wanted
    # Those that are left out are as if they had not been there.
    gone = ["", ".", "\n", "z" * 10_000, "cat " * 10_000, "\ud800", "🦄"]
    (alone,) = detect(made, [image], [["cat", "dog"]])
    (beside,) = detect(made, [image], [[*gone, "cat", *gone, "dog"]])
    places = {len(gone): 0, 2 * len(gone) + 1: 1}
    assert alone
    assert numbers(alone)[:, 1:].tolist() == numbers(beside)[:, 1:].tolist()
    assert [box.tag for box in alone] == [places[box.tag] for box in beside]


def test_every_box_of_hostile_tags_is_a_box(folder):
    made = detector(folder, box_threshold=0.01, text_threshold=0.01)
    (found,) = detect(made, [PHOTOGRAPHS["odd"]], [HOSTILE])
    height, width = PHOTOGRAPHS["odd"].shape[:2]
    assert found
    for box in found:
        assert 0 <= box.x0 < box.x1 <= width
        assert 0 <= box.y0 < box.y1 <= height
        assert any((letter.isascii() and letter.isalpha()) or letter == "中" for letter in HOSTILE[box.tag])


def test_images_without_tags_have_no_boxes(folder):
    made = detector(folder, box_threshold=0, text_threshold=0)
    image = PHOTOGRAPHS["china"]
    assert detect(made, [], []) == []
    assert detect(made, [image, image], [[], [".", ""]]) == [(), ()]
    none, some, last = detect(made, [image] * 3, [[], ["cat"], []])
    assert none == last == ()
    assert some


def test_it_prepares_in_other_processes_without_its_weights(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "model.safetensors").write_bytes(b"")
    prepare = pickle.loads(pickle.dumps(detector(tmp_path).prepare))
    fitted = prepare(Seen(PHOTOGRAPHS["china"]))
    assert (fitted.pixels.shape, fitted.height, fitted.width) == ((96, 143, 3), 427, 640)


def test_the_same_weights_are_loaded_once_for_all_thresholds(folder):
    before = grounding_dino._load.cache_info().misses
    image = PHOTOGRAPHS["china"]
    for config in ({"box_threshold": 0.3}, {"box_threshold": 0.4, "batch_size": 2}, {"max_iou": 0.1}):
        detect(detector(folder, **config), [image], [["cat"]])
    assert grounding_dino._load.cache_info().misses <= before + 1


def test_a_cpu_takes_one_image_at_a_time_unless_the_profile_says_more(monkeypatch):
    assert grounding_dino._batches("of this test", "", 0).size == 1
    assert grounding_dino._batches("of this test", "", 3).size == 3
    monkeypatch.setattr(grounding_dino, "count_gpus", lambda: 1)
    assert grounding_dino._batches("of a GPU in this test", "", 0).size == FIRST


def test_a_name_is_read_from_the_hubs_cache(tmp_path, monkeypatch, folder):
    """As it is published: the image processor's file on its own."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    shutil.copytree(folder, tmp_path / "published")
    whole = tmp_path / "published" / "processor_config.json"
    (tmp_path / "published" / "preprocessor_config.json").write_text(
        json.dumps(json.loads(whole.read_text())["image_processor"])
    )
    whole.unlink()
    snapshot = write_hub_cache(tmp_path / "cache", "someone/tiny", tmp_path / "published")
    config = pin_grounding_dino(DetectionConfig(model="someone/tiny"), download=False)
    assert config.revision == snapshot.name
    assert GroundingDino(config=config).version == f"someone/tiny {snapshot.name}"
    images = [PHOTOGRAPHS["china"], PHOTOGRAPHS["odd"]]
    found = detect(GroundingDino(config=config), images, [NAMES] * 2)
    assert any(found)
    assert found == detect(detector(folder), images, [NAMES] * 2)


def test_a_local_model_is_known_by_its_bytes_wherever_it_lies(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "copy")
    names = {
        GroundingDino(config=pin_grounding_dino(DetectionConfig(model=str(path)), download=False)).version
        for path in (folder, tmp_path / "copy")
    }
    assert len(names) == 1
    assert names.pop().startswith("Grounding DINO xxh3:")
    pinned = pin_grounding_dino(DetectionConfig(model=str(tmp_path / "copy")), download=False)
    (tmp_path / "copy" / "config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"detection\.revision"):
        pin_grounding_dino(pinned, download=False)
    with pytest.raises(ModelError, match=r"detection\.revision"):
        detect(GroundingDino(config=pinned), [PHOTOGRAPHS["china"]], [["cat"]])


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            "IDEA-Research/grounding-dino-base",
            "hf download IDEA-Research/grounding-dino-base config.json preprocessor_config.json tokenizer.json "
            "tokenizer_config.json model.safetensors --revision 12bdfa3120f3e7ec7b434d90674b3396eccf88eb$",
        ),
        ("./nowhere", "detection.model: nowhere: no such folder"),
    ],
)
def test_what_is_missing_is_named(tmp_path, monkeypatch, model, words):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError) as caught:
        pin_grounding_dino(DetectionConfig(model=model), download=False)
    assert re.search(words, str(caught.value), re.MULTILINE), str(caught.value)


def test_pickles_are_not_read(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="safetensors"):
        pin_grounding_dino(DetectionConfig(model=str(tmp_path)), download=False)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("config.json", json.dumps({"model_type": "bert"}), "bert.* grounding-dino"),
        ("config.json", "{", "detection: .*JSONDecodeError"),
        ("processor_config.json", "{", "detection: .*JSONDecodeError"),
        ("processor_config.json", "{}", "detection: .*FileNotFoundError"),
        ("tokenizer.json", "{", "detection: "),
        ("model.safetensors", "not weights", "detection: "),
    ],
)
def test_a_damaged_folder_is_one_message(folder, tmp_path, name, text, words):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / name).write_text(text)
    with pytest.raises(ModelError, match=words):
        detect(detector(tmp_path), [PHOTOGRAPHS["china"]], [["cat"]])


def test_weights_for_another_tokenizer_are_refused(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    moved = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, ".": 5, "?": 6, "cat": 7}
    BertTokenizer(vocab=moved).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="tokenizer"):
        detect(detector(tmp_path), [PHOTOGRAPHS["china"]], [["cat"]])


def test_a_box_says_all_that_a_row_holds(folder):
    (found,) = detect(detector(folder, box_threshold=0.1, text_threshold=0.1), [PHOTOGRAPHS["china"]], [["cat"]])
    assert all(isinstance(box, Box) and type(box.score) is float and type(box.x0) is float for box in found)
    assert detector(folder).looks
