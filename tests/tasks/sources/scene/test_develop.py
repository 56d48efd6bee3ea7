import numpy as np
import pytest

from pairwright.tasks.sources.scene.develop import Guide, denoise, tone_map


def guide(shape, *, matt=True):
    shape = np.asarray(shape, np.int32)
    albedo = np.full((*shape.shape, 3), 0.5, np.float32)
    normal = np.zeros((*shape.shape, 3), np.float32)
    normal[..., 2] = 1
    return Guide(shape, albedo, normal, np.full(shape.shape, matt))


def test_tones_by_hand():
    # Below the knee sRGB itself: 0.216 is half of the scale. At infinity white.
    light = np.array([[[0.0, 0.21586, 1e6], [0.6, -0.5, 0.0]]], np.float32)
    assert tone_map(light).tolist() == [[[0, 128, 255], [203, 0, 0]]]


def test_tones_never_fall():
    ramp = np.linspace(0, 3, 500, dtype=np.float32).reshape(1, -1, 1).repeat(3, 2)
    assert (np.diff(tone_map(ramp)[0, :, 0].astype(int)) >= 0).all()


def test_even_light_stays_and_noise_falls():
    flat = np.full((40, 50, 3), 0.4, np.float32)
    plain = guide(np.ones((40, 50)))
    assert denoise(flat, plain, strength=0.1) == pytest.approx(flat, rel=1e-5)
    noisy = flat * np.random.default_rng(0).normal(1, 0.05, flat.shape).astype(np.float32)
    assert (denoise(noisy, plain, strength=0.2) - 0.4).std() < 0.4 * (noisy - 0.4).std()


def test_light_does_not_cross_from_one_thing_to_another():
    shape = np.ones((30, 40))
    shape[:, 20:] = 2
    light = np.where(shape[..., None] == 1, 0.2, 0.24).repeat(3, 2).astype(np.float32)
    assert denoise(light, guide(shape), strength=1.0) == pytest.approx(light, rel=1e-4)


def test_single_bright_pixels_go():
    light = np.full((30, 40, 3), 0.3, np.float32)
    light[10, 10] = 40
    assert denoise(light, guide(np.ones((30, 40))), strength=0.2).max() < 0.4
    assert denoise(light, guide(np.ones((30, 40)), matt=False), strength=0.2).max() < 0.6


def test_printed_patterns_stay_sharp():
    plain = guide(np.ones((30, 40)))
    albedo = plain.albedo.copy()
    albedo[:, ::2] = 0.47
    light = (albedo * 0.6).astype(np.float32)
    kept = denoise(light, Guide(plain.shape, albedo, plain.normal, plain.matt), strength=0.3)
    assert np.abs(kept - light).max() < 0.002
