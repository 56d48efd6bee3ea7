import numpy as np
import pytest

from pairwright.tasks.report.calibrate_bins import Band, measure_spread
from pairwright.tasks.report.calibrate_chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, draw_spread, share_in_band


def spread(values, band):
    return measure_spread([("one", np.array(values, np.float64))], band)["one"]


def test_bars_stand_for_the_counts_and_the_band_has_its_own_tone():
    band = Band(0.6, 0.8)
    found = spread([0.5, 0.7, 0.7, 0.7, 0.9], band)
    chart = draw_spread("one", found, band)
    assert [bar.label.rpartition(": ")[2] for bar in chart.bars] == ["1", "3", "1"]
    assert [bar.tone for bar in chart.bars] == ["faint", "plain", "faint"]
    # Ticks end at 3, so that the bar of 3 fills the height.
    assert chart.bars[1].height == pytest.approx(HEIGHT - BOTTOM - TOP)
    assert share_in_band(found, band) == pytest.approx(0.6)
    assert "5 candidates" in chart.summary
    assert "60%" in chart.summary


@pytest.mark.parametrize("band", [Band(0.6, 0.8), Band(0.0, 1.0), Band(0.65, 0.9999), Band(0.99, 1.0)])
@pytest.mark.parametrize("values", [[0.7], [-1.0, 1.0], [1.0, 1.0], [0.123, 0.45, 0.999]])
def test_everything_lies_inside_the_frame(values, band):
    chart = draw_spread("one", spread(values, band), band)
    assert sum(int(bar.label.rpartition(": ")[2]) for bar in chart.bars) == len(values)
    for bar in chart.bars:
        assert LEFT <= bar.x <= bar.x + bar.width <= WIDTH - RIGHT + 0.1
        assert TOP - 0.1 <= bar.y <= HEIGHT - BOTTOM
    low, high = chart.marks
    assert LEFT <= low.place <= high.place <= WIDTH - RIGHT
    assert all(LEFT <= tick.place <= WIDTH - RIGHT + 0.1 for tick in chart.across)
    assert 2 <= len(chart.across) <= 12
