"""More than 8 bits, signs, fractions and many bands: readable pictures, or a refusal by name."""

import struct
import zlib

import numpy as np
import pytest
import tifffile
from PIL import Image

from pairwright.schemas.config import ImagesConfig
from pairwright.tasks.images import depth, tiff
from pairwright.tasks.images.decode import (
    RefusedImageError,
    decode_rgb,
    encode_png,
    probe_image,
    render_image,
)
from tests.fixtures.pictures import chunk, encode

RAMP = np.linspace(0, 1, 40 * 50).reshape(40, 50)
USUAL = ImagesConfig()


def write_tiff(values, **options):
    import io

    sink = io.BytesIO()
    tifffile.imwrite(sink, values, **options)
    return sink.getvalue()


def write_png(values, bits=0):
    data = encode(Image.fromarray(values))
    if bits:
        return data[:33] + chunk(b"sBIT", bytes([bits])) + data[33:]
    return data


def ramp(low, high, kind=np.uint16):
    return (low + RAMP * (high - low)).astype(kind)


def shown(data, config=USUAL):
    rendered = render_image(data, config)
    return rendered.pixels[:, :, 0].astype(int), rendered


DEEP = {
    "10 bits": write_png(ramp(20, 1000)),
    "12 bits in a TIFF": write_tiff(ramp(200, 3900)),
    "14 bits": write_tiff(ramp(0, 16383)),
    "thermal": write_tiff(ramp(29315, 31015)),
    "signed": write_tiff(ramp(-1024, 3071, np.int16)),
    "signed bytes": write_tiff(ramp(-100, 100, np.int8)),
    "32 bits": write_tiff(ramp(5, 90_000, np.uint32)),
    "above 31 bits": write_tiff(ramp(0, 4e9, np.uint32)),
    "fractions": write_tiff(ramp(0.2, 0.9, np.float32)),
    "half": write_tiff(ramp(0.2, 0.9, np.float16)),
    "double": write_tiff(ramp(-3, 1e6, np.float64)),
    "large file": write_tiff(ramp(0, 4095), bigtiff=True),
}


@pytest.mark.parametrize("name", DEEP)
def test_deep_grey_fills_the_range_of_the_screen(name) -> None:
    assert probe_image(DEEP[name], USUAL).width == 50
    grey, _ = shown(DEEP[name])
    assert np.abs(grey - RAMP * 255).max() <= 3
    assert (decode_rgb(DEEP[name])[:, :, 1] == grey).all()


def test_the_range_that_a_file_states_is_taken() -> None:
    dim = ramp(0, 1500)
    grey, rendered = shown(write_png(dim, bits=12))
    assert grey.max() == round(1500 / 4095 * 255)
    assert rendered.how == "uint16 0 to 4095, stated by the file"
    states = [(281, "H", 1, 4095, True)]
    grey, _ = shown(write_tiff(dim, extratags=states))
    assert grey.max() == round(1500 / 4095 * 255)
    states = [(340, "f", 1, -1.0, True), (341, "f", 1, 1.0, True)]
    grey, _ = shown(write_tiff(ramp(0, 0.5, np.float32), extratags=states))
    assert (grey.min(), grey.max()) == (128, 191)


def test_a_statement_that_values_exceed_does_not_count() -> None:
    """Files whose samples are shifted up to 16 bits state 12, too."""
    grey, rendered = shown(write_png(ramp(0, 65535), bits=12))
    assert (grey.min(), grey.max()) == (0, 255)
    assert rendered.how == "uint16 0 to 65535, of this image alone"


def test_a_range_set_or_measured_is_that_of_all_images() -> None:
    dim, bright = write_png(ramp(0, 1000)), write_png(ramp(0, 4000))
    for config in (ImagesConfig(range=(0, 4000)), USUAL.fill(measured=("uint16 0 4000",))):
        assert shown(dim, config)[0].max() == round(255 / 4)
        assert shown(bright, config)[0].max() == 255
    stated = write_png(ramp(100, 1000), bits=12)
    grey, _ = shown(stated, ImagesConfig(range="percentiles"))
    assert (grey.min(), grey.max()) == (0, 255)
    ranges = [shown(image)[1].how for image in (dim, bright, DEEP["fractions"])]
    low, high = depth.read_measured(depth.measure_ranges(ranges))["uint16"]
    assert (low, round(high, -2)) == (0, 4000)


def test_hot_pixels_and_missing_ones_do_not_count() -> None:
    hot = ramp(0, 1, np.float32)
    hot[0, 0], hot[0, 1], hot[0, 2] = 1e30, np.inf, np.nan
    grey, _ = shown(write_tiff(hot))
    assert np.abs(grey[1:] - RAMP[1:] * 255).max() <= 3
    assert grey[0, 1] == 255
    field = ramp(300, 800, np.int16)
    field[:20] = -9999
    grey, _ = shown(write_tiff(field, extratags=[(42113, "s", 6, "-9999", True)]))
    assert not grey[:20].any()
    assert grey[20].max() < grey[-1].max() == 255


@pytest.mark.parametrize(
    ("values", "remark"), [(0, depth.NEARLY_BLACK), (4095, depth.NEARLY_WHITE), (None, "")]
)
def test_an_empty_picture_has_a_remark(values, remark) -> None:
    image = ramp(0, 4095) if values is None else np.full((40, 50), values, np.uint16)
    assert shown(write_png(image), ImagesConfig(range=(0, 4095)))[1].remark == remark


COLOURS = np.stack([ramp(0, 4095), ramp(4095, 0), ramp(1000, 1000)], axis=2)


@pytest.mark.parametrize("compression", [None, "zlib"])
def test_deep_colour_keeps_its_colours(monkeypatch, compression) -> None:
    expected = np.rint(COLOURS / 4095 * 255)
    data = write_tiff(COLOURS, photometric="rgb", compression=compression)
    config = ImagesConfig(range=(0, 4095))
    for has_tifffile in (True, False):
        if not has_tifffile:
            monkeypatch.setattr(tiff, "find_spec", lambda name: None)
        assert np.abs(render_image(data, config).pixels - expected).max() <= 1


def test_deep_colour_png_keeps_its_low_bits() -> None:
    import cv2

    _, png = cv2.imencode(".png", COLOURS[:, :, ::-1])
    pixels = render_image(png.tobytes(), ImagesConfig(range=(0, 4095))).pixels
    assert np.abs(pixels - np.rint(COLOURS / 4095 * 255)).max() <= 1
    alpha = np.full((40, 50, 1), 32768, np.uint16)
    _, png = cv2.imencode(".png", np.concatenate([COLOURS * 0, alpha], axis=2))
    assert np.abs(decode_rgb(png.tobytes()).astype(int) - 127).max() <= 1


BANDS = np.stack([ramp(0, 1000 * (number + 1)) for number in range(5)], axis=2)
MANY = {
    "beside each other": write_tiff(BANDS, photometric="minisblack", planarconfig="contig"),
    "one after another": write_tiff(
        np.moveaxis(BANDS, 2, 0), photometric="minisblack", planarconfig="separate"
    ),
    "compressed": write_tiff(
        BANDS, photometric="minisblack", planarconfig="contig", compression="zlib"
    ),
    "pages": write_tiff(np.ascontiguousarray(np.moveaxis(BANDS, 2, 0)), photometric="minisblack"),
    "four of 8 bits": write_tiff(
        (BANDS[:, :, :4] / 20).astype(np.uint8), photometric="minisblack", planarconfig="contig"
    ),
    "colour and infrared": write_tiff(
        (BANDS[:, :, :4] / 20).astype(np.uint8), photometric="rgb", extrasamples=["unspecified"]
    ),
}


@pytest.mark.parametrize("name", MANY)
def test_bands_are_chosen_or_refused_by_their_number(name) -> None:
    if name != "pages":  # of which the first is shown
        with pytest.raises(RefusedImageError) as refused:
            decode_rgb(MANY[name])
        assert refused.value.reason == "four bands or more"
        assert "images.bands" in refused.value.detail
    rendered = render_image(MANY[name], ImagesConfig(bands=(3, 2, 1), range=(0, 3000)))
    scale = 20 if "8" in name or "colour" in name else 1
    expected = [3000 / scale, 2000 / scale, 1000 / scale]
    assert np.abs(rendered.pixels[-1, -1] - np.array(expected) / 3000 * 255).max() <= 1
    assert rendered.how.endswith("; bands 3, 2, 1")
    assert decode_rgb(encode_png(rendered.pixels)).shape == (40, 50, 3)
    with pytest.raises(RefusedImageError, match="no such bands"):
        render_image(MANY[name], ImagesConfig(bands=(9,)))


def test_transparency_of_8_bits_is_no_fourth_band() -> None:
    image = Image.new("RGBA", (40, 40), (0, 0, 0, 0))
    assert (decode_rgb(encode(image, "TIFF")) == 255).all()


def test_a_missing_package_is_named(monkeypatch) -> None:
    monkeypatch.setattr(tiff, "find_spec", lambda name: None)
    with pytest.raises(RefusedImageError, match="tifffile"):
        decode_rgb(DEEP["double"])
    heic = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(40)
    jxl = b"\xff\x0a" + bytes(40)
    for data, package in ((heic, "pillow-heif"), (jxl, "pillow-jxl-plugin")):
        with pytest.raises(RefusedImageError, match=package) as refused:
            probe_image(data, USUAL)
        assert refused.value.reason == "format needs a package"


def test_hostile_samples_are_bounded(monkeypatch) -> None:
    values = np.zeros((40, 50, 5), np.uint16)
    data = write_tiff(values, photometric="minisblack", planarconfig="contig", compression="zlib")
    segment = zlib.compress(values.tobytes(), 6)
    assert data.count(segment) == 1
    bomb = zlib.compress(bytes(5 << 20), 9)
    with tifffile.TiffFile(__import__("io").BytesIO(data)) as file:
        offset = file.pages[0].dataoffsets[0]
        tags = {name: file.pages[0].tags[name].valueoffset for name in (273, 279)}
    for tag, value in ((273, len(data)), (279, len(bomb))):
        data = data[: tags[tag]] + struct.pack("<I", value) + data[tags[tag] + 4 :]
    assert offset
    with pytest.raises(RefusedImageError, match="expands beyond"):
        render_image(data + bomb, ImagesConfig(bands=(1,)))
    header = write_tiff(np.zeros((16, 16), np.float64), photometric="minisblack")
    for size in range(8, len(header), 97):
        with pytest.raises(RefusedImageError):
            decode_rgb(header[:size])


@pytest.mark.parametrize(
    "settings", [{"bands": (1, 2)}, {"bands": (0,)}, {"range": (5, 5)}, {"range": "wide"}]
)
def test_settings_that_fit_nothing_are_refused(settings) -> None:
    with pytest.raises(ValueError, match=r"bands|range"):
        ImagesConfig(**settings)
