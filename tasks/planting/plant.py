"""Plant rendered things into photographs: pixels, masks and shadows.

A thing is rendered alone on a grey plane, with and without it, under one light. Where only the
plane is seen, the photograph is multiplied by the ratio of the two renders, which is the thing's
shadow; the thing's own pixels replace the photograph's. All other pixels stay as they are, to the
byte.

Reads and writes nothing. Needs Mitsuba and Open Image Denoise: import this module only to render.
"""

from dataclasses import dataclass, replace
from typing import Any

import cv2
import mitsuba as mi
import numpy as np
import pyoidn
from numpy.typing import NDArray

from pairwright.tasks.images.decode import RGB
from pairwright.tasks.planting.cut_things import Cutout
from pairwright.tasks.planting.find_spots import Spot
from pairwright.tasks.scenes import render
from pairwright.tasks.scenes.pictures import Rng, linear_colour
from pairwright.tasks.scenes.state import DISTANCE, Camera, Mask, Thing
from pairwright.tasks.scenes.vocabulary import Direction, Light, View

Plane = NDArray[np.float32]
ELEVATION = 26.0
"""Degrees above the ground from which things are seen: most photographs are taken standing."""
FLOOR = 0.5  # reflectance of the grey plane
FLOOR_WIDTH = 40.0
SKY = 0.9
"""Light of the sky, more than in rendered rooms: metal mirrors it and shows its colour."""
PLANE_WIDTH = 32
PLANE_SAMPLES = 256
COVERAGE_SAMPLES = 16
SHADOW = 0.985
"""A pixel of the plane with at least this share of its light is not in the shadow."""
FADE = 0.15
"""Share of a window's width over which a shadow that reaches its border fades."""
COVERED = 0.02
"""Least share of a pixel that a thing covers."""
EXPOSURES = (0.1, 0.4)
"""Range of the light that the grey plane reflects, as a share of white.

A thing in a darker place would not show its colour."""
TONE = 0.25  # share of the place's hue that the thing's light takes
HUES = (0.7, 1.3)
"""Range of a place's channels against their mean: on a red ground, green would look yellow."""
NOISE_LIMIT = 4.0  # levels of 255
CUT_HEIGHT = 0.95
"""Longer side of a thing of another photograph, in metres of the toy world."""
CUT_WINDOW = 1.6  # side of the window of such a thing, in its longer sides
CONTACT = 0.55  # share of the light that such a thing takes from its foot
FLATNESS = 0.3  # height of its shadow, as a share of the width
HALF = 0.5  # least share of a pixel of a mask
SOFTNESS = 0.6
"""Standard deviation of the blur of a thing, in pixels: photographs are softer than renders."""


@dataclass(frozen=True, slots=True)
class CloseUp(Camera):
    """Camera whose square window is a few metres wide."""

    reach: float
    """Width of the window in metres, at the distance of the thing."""

    @property
    def focal(self) -> float:
        """Return the focal length in pixels."""
        return self.width * DISTANCE / self.reach


FRONT = CloseUp(View(0.0, ELEVATION, ""), 64, 64, 2.0)
"""Camera by which the facing of a thing is told."""


@dataclass(frozen=True, slots=True)
class Render:
    """Render of a thing on the grey plane, in a window."""

    light: Plane
    """Light of each pixel, ``(h, w, 3)``; 1 is what a white plane reflects."""
    coverage: Plane
    """Share of each pixel that the thing covers, ``(h, w)``."""
    shadow: Plane
    """Share of the plane's light that is left at each pixel, ``(h, w)``; exactly 1 outside of the
    shadow."""
    foot: tuple[int, int]
    """Column and row of the thing's foot in the window."""


@dataclass(frozen=True, slots=True)
class Planted:
    """Thing in a photograph."""

    mask: Mask
    """Pixels of the thing, ``(h, w)``."""
    touched: Mask
    """Pixels that may differ from the photograph: those of the thing, its edge and its shadow."""
    is_whole: bool
    """Whether the whole thing is in the photograph."""


def frame(item: Thing, spot: Spot, elevation: float) -> CloseUp:
    """Return a camera that sees a thing at the origin with its shadow."""
    _, corners = item.footprint()
    radius = float(np.linalg.norm(corners, axis=1).max())
    reach = 2 * radius + 1.5 * item.height + 0.2
    width = max(16, round(reach * spot.scale))
    view = View(0.0, elevation, "")
    return CloseUp(view, width, width, reach)


def render_thing(
    item: Thing,
    camera: CloseUp,
    direction: Direction,
    *,
    samples: int,
    seed: int,
) -> Render:
    """Render a thing that stands at the origin."""
    full = _light_of((item,), camera, direction, samples=samples, seed=seed)
    coverage = _cover(item, camera)
    plane = _light_plane(camera, direction)
    shadow = _shadow(full.mean(axis=2) / plane, coverage)
    column, row = camera.project(np.zeros(3))
    white = float(np.median(plane)) / FLOOR
    return Render(full / white, coverage, shadow, (round(float(column)), round(float(row))))


def render_cutout(cutout: Cutout, spot: Spot) -> Render:
    """Return a thing that was cut out of a photograph as if it were rendered at a spot.

    Its longer side is at most ``CUT_HEIGHT`` metres of the toy world; it is never enlarged. Its
    shadow is a soft one below its foot.
    """
    longer = max(cutout.coverage.shape)
    factor = min(1.0, CUT_HEIGHT * spot.scale / longer)
    pixels = _shrink(cutout.pixels, factor)
    covered = _shrink(cutout.coverage, factor)
    height, width = covered.shape
    side = round(CUT_WINDOW * max(height, width))
    left = (side - width) // 2
    top = (side - height) // 2
    inside = (slice(top, top + height), slice(left, left + width))
    coverage = np.zeros((side, side), np.float32)
    coverage[inside] = np.where(covered < COVERED, 0, covered)
    light = np.zeros((side, side, 3), np.float32)
    own_light = float(np.clip(cutout.brightness, *EXPOSURES))
    light[inside] = linear_colour(pixels.astype(np.uint8)) * (FLOOR / own_light)
    foot = (side // 2, top + height)
    return Render(light, coverage, _cast_below(coverage, foot), foot)


def _shrink(pixels: NDArray[Any], factor: float) -> NDArray[Any]:
    """Return pixels scaled by a factor of at most 1, at least one of them."""
    height, width = pixels.shape[:2]
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    return cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)


def _cast_below(coverage: Plane, foot: tuple[int, int]) -> Plane:
    """Return the share of light that is left around the foot of a thing: an ellipse of shadow."""
    side = coverage.shape[0]
    base = coverage[max(0, foot[1] - side // 8) : foot[1]].max(axis=0) >= HALF
    columns = np.flatnonzero(base)
    middle = float(columns.mean()) if columns.size else foot[0]
    across = max(columns.size, side // 8) / 2
    x, y = np.meshgrid(np.arange(side), np.arange(side))
    distance = ((x - middle) / across) ** 2 + ((y - foot[1]) / (FLATNESS * across)) ** 2
    shadow = 1 - CONTACT * np.exp(-distance) * _fade(side)
    shadow[shadow >= SHADOW] = 1
    return shadow.astype(np.float32)


def _light_plane(camera: CloseUp, direction: Direction) -> Plane:
    """Return the light of the plane without a thing, ``(h, w)``: smooth, so rendered small."""
    small = replace(camera, width=PLANE_WIDTH, height=PLANE_WIDTH)
    light = _light_of((), small, direction, samples=PLANE_SAMPLES, seed=0).mean(axis=2)
    size = (camera.width, camera.height)
    return np.maximum(cv2.resize(light, size, interpolation=cv2.INTER_CUBIC), 1e-4)


def _light_of(
    things: tuple[Thing, ...],
    camera: CloseUp,
    direction: Direction,
    *,
    samples: int,
    seed: int,
) -> Plane:
    """Return the denoised light of the plane with some things."""
    half = FLOOR_WIDTH / 2
    floor = {
        "type": "rectangle",
        "to_world": mi.ScalarTransform4f().scale(half),
        "bsdf": {"type": "diffuse", "reflectance": {"type": "rgb", "value": FLOOR}},
    }
    meshes = render.mesh_things(things)
    lights = render.place_lights(Light(direction, "white"))
    lights["sky"] = {"type": "constant", "radiance": {"type": "rgb", "value": SKY}}
    built = mi.load_dict({"type": "scene", "floor": floor, **meshes, **lights}, optimize=False)
    light = render.expose(built, camera, samples=samples, seed=seed)
    albedo = render.glow_things(things, camera, background=FLOOR)
    denoised = pyoidn.denoise(light, albedo, None, hdr=True)
    return np.maximum(denoised, 0).astype(np.float32)


def _cover(item: Thing, camera: CloseUp) -> Plane:
    """Return the share of each pixel that a thing covers."""
    glow = render.glow_things((item,), camera, white=True, samples=COVERAGE_SAMPLES)
    coverage = np.clip(glow.mean(axis=2), 0, 1)
    coverage[coverage < COVERED] = 0
    return coverage.astype(np.float32)


def _shadow(ratio: Plane, coverage: Plane) -> Plane:
    """Return the smooth share of light that is left; under the thing, that of the nearest plane."""
    known = (coverage == 0).astype(np.float32)
    size = max(3, ratio.shape[0] // 40 * 2 + 1)
    weight = cv2.GaussianBlur(known, (size, size), 0)
    blurred = cv2.GaussianBlur(np.clip(ratio, 0, 1).astype(np.float32) * known, (size, size), 0)
    shadow = np.where(weight > 1e-3, blurred / np.maximum(weight, 1e-3), 1)
    shadow = 1 - (1 - shadow) * _fade(ratio.shape[0])
    shadow[shadow >= SHADOW] = 1
    return shadow.astype(np.float32)


def _fade(width: int) -> Plane:
    """Return weights that fall to 0 at the border of a square window."""
    from_edge = np.minimum(np.arange(width), np.arange(width)[::-1]) / (FADE * width)
    line = np.clip(from_edge, 0, 1)
    return np.minimum(line[:, None], line[None, :]).astype(np.float32)


def plant(
    photograph: RGB,
    rendered: Render,
    spot: Spot,
    rng: Rng,
    *,
    original: RGB,
) -> tuple[RGB, Planted]:
    """Return a photograph with one more thing.

    ``original`` is the photograph without any thing, whose light and noise the thing takes. The
    rendered window may reach beyond the photograph.
    """
    height, width = photograph.shape[:2]
    left = spot.x - rendered.foot[0]
    top = spot.y - rendered.foot[1]
    size = rendered.coverage.shape[0]
    x0, y0 = max(left, 0), max(top, 0)
    x1, y1 = min(left + size, width), min(top + size, height)
    inside = (slice(y0 - top, y1 - top), slice(x0 - left, x1 - left))
    window = (slice(y0, y1), slice(x0, x1))
    coverage = rendered.coverage[inside]
    shadow = rendered.shadow[inside]
    light = rendered.light[inside]
    before = photograph[window]
    ground = original[window]
    shaded = linear_colour(before).astype(np.float32) * shadow[..., None]
    lit = render.srgb_levels(shaded)
    thing = render.tone_levels(light * _exposure_of(ground, original))
    noise = min(measure_noise(ground), measure_noise(original))  # foliage is no noise
    thing += rng.normal(0, noise, thing.shape[:2])[..., None]
    thing = cv2.GaussianBlur(thing.astype(np.float32), (0, 0), SOFTNESS)
    blended = lit + (thing - lit) * coverage[..., None]
    touched = (coverage > 0) | (shadow < 1)
    after = np.clip(np.rint(blended), 0, 255).astype(np.uint8)
    planted = photograph.copy()
    planted[window] = np.where(touched[..., None], after, before)
    mask = _embed(coverage >= HALF, window, (height, width))
    is_whole = bool((coverage > 0).sum() == (rendered.coverage > 0).sum())
    return planted, Planted(mask, _embed(touched, window, (height, width)), is_whole)


def _embed(part: Mask, window: tuple[slice, slice], shape: tuple[int, int]) -> Mask:
    whole = np.zeros(shape, bool)
    whole[window] = part
    return whole


def _exposure_of(ground: RGB, photograph: RGB) -> Plane:
    """Return the factor of a thing's light, per channel: brightness and a little hue of its place.

    Every thing is lit as if the plane reflected what its place does, within ``EXPOSURES``.
    """
    mean = linear_colour(ground).reshape(-1, 3).mean(axis=0)
    everywhere = linear_colour(photograph[::4, ::4]).mean()
    brightness = float(np.clip((mean.mean() + everywhere) / 2, *EXPOSURES))
    hue = mean / max(float(mean.mean()), 1e-4)
    factors = brightness / FLOOR * (1 + TONE * (np.clip(hue, *HUES) - 1))
    return factors.astype(np.float32)


def measure_noise(pixels: RGB) -> float:
    """Return the standard deviation of a picture's noise in levels, at most ``NOISE_LIMIT``.

    The median of absolute second differences, which edges hardly alter (Donoho 1995).
    """
    grey = pixels.mean(axis=2)
    if min(grey.shape) < 4:
        return 0.0
    seconds = grey[:, 2:] - 2 * grey[:, 1:-1] + grey[:, :-2]
    deviation = float(np.median(np.abs(seconds))) / 0.6745 / np.sqrt(6)
    return min(deviation, NOISE_LIMIT)


def find_direction(photograph: RGB) -> Direction:
    """Return the side that a photograph is brighter on; "above" where it is on neither."""
    grey = photograph.mean(axis=2)
    third = grey.shape[1] // 3
    left = float(grey[:, :third].mean())
    right = float(grey[:, -third:].mean())
    if left > 1.1 * right:
        return "left"
    if right > 1.1 * left:
        return "right"
    return "above"
