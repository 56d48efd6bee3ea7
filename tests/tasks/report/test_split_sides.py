import pytest

from pairwright.tasks.report.split_sides import split_sides


@pytest.mark.parametrize(
    ("first", "between", "second"),
    [
        ("Image 1 has a red box", ", whereas ", "Image 2 has a blue one."),
        ("In Image 1, the mug stands left", ". ", "In Image 2, it is gone."),
        ("The first image shows a cat", " while ", "the second image shows a dog."),
        ("Image 1 shows 'A'", "; ", "in Image 2, one finds 'B' instead."),
    ],
)
def test_a_statement_about_one_image_each_is_divided(first, between, second):
    assert split_sides(first + between + second) == (first, second)


@pytest.mark.parametrize(
    "statement",
    [
        "",
        "A purple duck can be seen in Image 1 but not in Image 2.",
        "Image 2 has a ball, whereas Image 1 has none.",
        "Image 1 and Image 2 differ, while Image 2 is darker.",
        "The light is warmer, and the shadows are longer.",
    ],
)
def test_others_are_left_whole(statement):
    assert split_sides(statement) is None
