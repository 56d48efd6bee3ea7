from pairwright.schemas.section import say_changes

BEFORE = {"batch": 8, "model": {"name": "tiny", "layers": ["q", "k"]}, "start": "", "old": 1}
AFTER = {"batch": 8, "model": {"name": "small", "layers": []}, "start": "sft", "new": None}


def test_each_field_that_differs_is_named_with_both_values() -> None:
    assert list(say_changes(BEFORE, AFTER)) == [
        "model.name was tiny, is small",
        "model.layers was q, k, is none",
        "start was none, is sft",
        "old was 1, is none",
    ]
    assert list(say_changes(BEFORE, AFTER, free=("model.", "old"))) == ["start was none, is sft"]
    assert list(say_changes(BEFORE, BEFORE)) == []
