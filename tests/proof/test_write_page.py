"""The page holds what the results say; its tables are those of the results beside it."""

from tests.proof.write_page import PAGE, fill_page, make_table, read_results

MEASURES = {"experiment": "noise", "statements": 0.9, "unreadable": 0.1, "cider": 80.0, "cpu": 30}


def result(arm: str, seed: int, whole: float) -> dict[str, object]:
    return {
        **MEASURES,
        "task": ("noise", 2, seed),
        "size": "two mistakes",
        "arm": arm,
        "seed": seed,
        "whole": whole,
    }


def test_the_page_has_the_tables_of_the_results_beside_it():
    done = read_results(PAGE.with_suffix(".jsonl"))
    assert done
    assert fill_page(PAGE.read_text(), done) == PAGE.read_text()


def test_line_is_the_mean_of_seeds_with_range():
    done = [result("DPO", 0, 0.5), result("SFT", 0, 0.25), result("DPO", 1, 0.7)]
    lines = make_table(done, "writer").splitlines()
    assert lines[2].startswith("| two mistakes | DPO | 2 | 60.0 (50.0–70.0) | 90.0 (90.0–90.0) |")
    assert lines[3].startswith("| two mistakes | SFT | 1 | 25.0 | 90.0 |")
