import pytest

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.protocols import match_captions
from pairwright.tasks.evaluation.read_captions import Record


def one(name, text, where="pred line 1"):
    return Record(name, (text,), False, where)


def several(name, *texts):
    return Record(name, texts, True, "ref record 1")


# As in Spot-the-Diff: two records of one pair, and a blank sentence.
REFERENCES = [several("1", "a car left.", "two men came"), several("2", "no change", ""), several("1", "a man left")]
PREDICTIONS = [one("2", "nothing"), one("1", "a car is gone")]


@pytest.mark.parametrize(
    ("protocol", "wanted"),
    [
        ("coco", [("1", ("a car left.", "two men came", "a man left")), ("2", ("no change",))]),
        ("spot-the-diff", [("1", ("a car left.", "two men came", "a man left")), ("2", ("no change",))]),
        (
            "spot-the-diff-records",
            [("1", ("a car left.", "two men came")), ("2", ("no change",)), ("1", ("a man left",))],
        ),
        ("spot-the-diff-multi", [("1", ("a car left. two men came",)), ("2", ("no change",)), ("1", ("a man left",))]),
    ],
)
def test_protocols(protocol, wanted):
    found = match_captions(PREDICTIONS, REFERENCES, protocol=protocol)
    assert [(item.name, item.references) for item in found.items] == wanted
    texts = {"1": "a car is gone", "2": "nothing"}
    assert [item.prediction for item in found.items] == [texts[name] for name, _ in wanted]
    assert found.blank == (0 if protocol == "spot-the-diff-multi" else 1)


def test_records_are_needed_where_records_are_scored():
    with pytest.raises(ConfigError, match=r"ref line 4: .*sentences"):
        match_captions([one("1", "x")], [one("1", "y", "ref line 4")], protocol="spot-the-diff-multi")


@pytest.mark.parametrize(
    ("option", "words"), [({"protocol": "std"}, "--protocol std"), ({"missing": "no"}, "--missing no")]
)
def test_unknown_names(option, words):
    with pytest.raises(ConfigError, match=f"{words}: .*(coco|refuse)"):
        match_captions(PREDICTIONS, REFERENCES, **option)


@pytest.mark.parametrize(
    ("predictions", "words"),
    [
        (
            [*PREDICTIONS, one("2", "again", "pred line 9")],
            "pred line 9: id '2' .*pred line 1",
        ),
        ([*PREDICTIONS, one("9", "x", "pred line 3")], "pred line 3: ids '9' "),
        ([PREDICTIONS[0]], "ids '1' .*--missing"),
        ([several("1", "a", "b")], "id '1' .*2"),
    ],
)
def test_ids_must_fit(predictions, words):
    with pytest.raises(ConfigError, match=words):
        match_captions(predictions, REFERENCES)


def test_many_missing_ids_are_counted():
    references = [several(str(number), "x") for number in range(9)]
    with pytest.raises(ConfigError, match=r"ids '1', '2', '3' and 5 more .*--missing"):
        match_captions([one("0", "x")], references)


def test_missing_predictions_may_be_empty_or_leave_their_items_out():
    empty = match_captions([PREDICTIONS[0]], REFERENCES, missing="empty")
    assert [(item.name, item.prediction) for item in empty.items] == [("1", ""), ("2", "nothing")]
    assert (empty.missing, empty.empty) == (1, 1)
    less = match_captions([PREDICTIONS[0]], REFERENCES, missing="leave-out")
    assert [item.name for item in less.items] == ["2"]
    assert (less.missing, less.empty, less.blank) == (1, 0, 1)


def test_items_with_blank_references_only_are_left_out_and_counted():
    found = match_captions([one("1", " "), one("2", "x")], [several("1", "x"), several("2", " ", "")])
    assert [item.name for item in found.items] == ["1"]
    assert (found.unreferenced, found.blank, found.empty) == (1, 2, 1)
    with pytest.raises(ConfigError, match="score"):
        match_captions([one("2", "x")], [several("2", "")])
