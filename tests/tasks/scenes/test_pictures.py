import numpy as np
import pytest

from pairwright.tasks.scenes import pictures
from pairwright.tasks.scenes.vocabulary import COLOURS, TEXTS


def test_linear_values_of_srgb_by_hand() -> None:
    expected = [0, 1, ((188 / 255 + 0.055) / 1.055) ** 2.4]
    assert pictures.linear_colour((0, 255, 188)) == pytest.approx(expected)
    assert pictures.linear_colour((10, 10, 10))[0] == pytest.approx(10 / 255 / 12.92)


def test_signs_contrast_with_their_boards_and_differ_by_their_text() -> None:
    for colour in ("red", "white", "turquoise"):
        boards = [pictures.sign_board(text, COLOURS[colour]) for text in TEXTS]
        for k, board in enumerate(boards):
            brightness = board.mean(axis=2)
            assert brightness.max() - brightness.min() > 0.3
            assert all(np.abs(board - other).max(axis=2).mean() > 0.02 for other in boards[:k])


def test_letters_fill_the_board_but_stay_inside_its_frame() -> None:
    for text in TEXTS:
        board = pictures.sign_board(text, (236, 235, 230)).mean(axis=2)
        ink = board[20:-20, 20:-20] < 0.3
        rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
        assert 4 < rows[0] < rows[-1] < 155
        assert 4 < columns[0] < columns[-1] < 355
        assert rows[-1] - rows[0] > 60
