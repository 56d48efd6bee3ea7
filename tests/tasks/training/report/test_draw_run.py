"""Which charts a run has: where points lie, what is smoothed, what is left out."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwright.tasks.pages.charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH
from pairwright.tasks.training.report.draw_run import Metrics, arrange, draw_run, smooth
from pairwright.tasks.training.runs import HELD_OUT, TRAIN, MetricsFile, Run
from tests.tasks.training.report.handmade_run import HOSTILE, entries, points, write_metrics


def draw(train=(), held_out=(), name="loss"):
    """Return the only chart of one metric."""
    lines = {(TRAIN, name): points(*train), (HELD_OUT, name): points(*held_out)}
    sections = draw_run(Metrics(lines, max(len(train), len(held_out), 1), 1.0))
    return sections[0].charts[0] if sections else None


def corners(stroke):
    return np.array(re.findall(r"([\d.]+) ([\d.]+)", stroke.path), dtype=float).reshape(-1, 2)


def charts_of(logged):
    return {section.title: section.charts for section in draw_run(arrange(logged))}


def titles(charts):
    return [chart.title for chart in charts]


def legend(chart):
    return [name for _, name, _ in chart.legend]


def test_a_wild_value_of_the_faint_line_does_not_flatten_the_rest():
    values = np.ones(400)
    values[::2] = 2.0
    values[200] = 1e6
    chart = draw(values)
    assert float(chart.up[-1].label.replace(",", "")) < 2 * smooth(points(*values))[:, 1].max()
    (faint,) = (stroke for stroke in chart.strokes if stroke.look == "raw plain")
    assert (corners(faint)[:, 1] >= TOP).all()


def test_single_values_are_dots_that_say_what_they_are():
    chart = draw(held_out=[0.25, 0.5], name="accuracy")
    labels = [f"text, held-out, step {step}" for step in ("1: 25.0%", "2: 50.0%")]
    assert [dot.label for dot in chart.dots] == labels
    assert [stroke.look for stroke in chart.strokes] == ["held chosen"]
    assert chart.summary == "Accuracy. text: 50.0% on held-out rows."
    single = draw([3])
    assert single.strokes == []
    assert [dot.label for dot in single.dots] == ["loss, train, step 1: 3"]


@given(
    values=st.lists(st.floats(), max_size=60),
    held=st.lists(st.floats(), max_size=4),
    name=st.sampled_from(["loss", "accuracy", "margin"]),
)
def test_whatever_was_logged_stays_inside_the_drawing(values, held, name):
    chart = draw(values, held, name)
    for stroke in chart.strokes if chart else ():
        x, y = corners(stroke).T
        assert ((x >= LEFT) & (x <= WIDTH - RIGHT)).all()
        assert ((y >= TOP) & (y <= HEIGHT - BOTTOM)).all()
    assert chart is None or len(chart.up) >= 2


def test_sft_page_has_no_preference_charts():
    rows = [(step, "train", name, 5.0 - step) for step in (1, 2) for name in ("loss", "nll")]
    charts = charts_of(entries(*rows))
    assert list(charts) == ["Learning"]
    assert titles(charts["Learning"]) == ["Loss"]
    assert legend(charts["Learning"][0]) == ["loss"]
    apart = charts_of(entries(*rows, (2, HELD_OUT, "nll", 9.0)))["Learning"]
    assert legend(apart[0]) == ["loss", "negative log-likelihood"]


def test_adpo_page_has_retriever_section_and_unknown_metrics(tmp_path):
    run = Run(tmp_path)
    write_metrics(run, range(1, 40), measured=(20, 39))
    charts = charts_of(MetricsFile(run.metrics).read_until().entries)
    assert list(charts) == ["Learning", "The retriever", "Steps and speed", "Further metrics"]
    retriever = ["Entropy", "Effective candidates", "Reward", "Doubtful negatives"]
    assert titles(charts["The retriever"]) == retriever
    assert titles(charts["Further metrics"]) == [HOSTILE]
    assert len(charts["Learning"][0].dots) == 2


def test_points_are_sorted_by_step_without_repeats():
    rows = [(20, "train", "loss", 2.0), (10, "train", "loss", 3.0), (20, "train", "loss", 1.0)]
    metrics = arrange(entries(*rows))
    assert metrics.curve("loss").tolist() == [[10, 3], [20, 1]]
    assert (metrics.last, metrics.epoch) == (20, 2.0)


def test_few_points_are_not_smoothed_and_many_are_by_hand():
    few = points(*range(20))
    assert smooth(few) is few
    # 40 points look back over 2: each mean is half the value and half the mean before, by the
    # weights so far.
    smoothed = smooth(points(1.0, 0.0, *([0.0] * 38)))
    assert smoothed[:3, 1] == pytest.approx([1.0, (0.25 * 1) / 0.75, 0.125 / 0.875])
