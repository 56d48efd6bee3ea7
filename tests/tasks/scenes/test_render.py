import numpy as np

from pairwright.tasks.scenes.render import develop, linear_of, tone_map


def test_tones_by_hand() -> None:
    # Below the knee sRGB itself: 0.216 is half of the scale. At infinity white.
    light = np.array([[[0.0, 0.21586, 1e6], [0.6, -0.5, 0.0]]], np.float32)
    assert tone_map(light).tolist() == [[[0, 128, 255], [203, 0, 0]]]


def test_tones_are_undone() -> None:
    levels = np.arange(250, dtype=np.uint8).reshape(1, -1, 1).repeat(3, axis=2)
    assert np.array_equal(tone_map(linear_of(levels)), levels)


def test_noise_falls_and_printed_patterns_stay() -> None:
    flat = np.full((96, 128, 3), 0.5, np.float32)
    albedo = flat.copy()
    albedo[:, np.arange(128) % 16 < 8] = 0.25
    noise = np.random.default_rng(0).normal(1, 0.1, flat.shape[:2]).astype(np.float32)
    noisy = albedo * noise[..., None]
    clean = tone_map(albedo).astype(float)
    error = np.abs(develop(noisy, albedo) - clean).mean()
    assert error < 0.5 * np.abs(tone_map(noisy) - clean).mean()
