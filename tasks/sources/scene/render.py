"""Render scenes: meshes, materials, lights and the camera of a photograph, its light, and what is where in it.

Reads and writes nothing. Needs Mitsuba, whose variant is set here, with one thread, since the worker processes share
the cores, and Open Image Denoise: import this module only to render.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import drjit
import mitsuba as mi
import numpy as np
import pyoidn
from numpy.typing import NDArray

from pairwright.tasks.sources.scene.places import Picture, hide, linear, sign_board, stain, surfaces_of
from pairwright.tasks.sources.scene.shapes import Part, Soup, corner_normals, planar_uv
from pairwright.tasks.sources.scene.state import TARGET, Camera, Mask, Scene, Thing
from pairwright.tasks.sources.scene.vocabulary import COLOURS, TINTS, Light

mi.set_variant("scalar_rgb")
mi.set_log_level(mi.LogLevel.Error)
drjit.set_thread_count(1)

Plugin = dict[str, Any]
Plane = NDArray[np.float32]
FIXED = {
    "dark": (0.02, 0.02, 0.024),
    "pale": (0.82, 0.8, 0.74),
    "steel": (0.55, 0.56, 0.58),
    "glow": (0.95, 0.55, 0.12),
}


def _rgb(value: Any) -> Plugin:
    return {"type": "rgb", "value": [float(v) for v in value]}


def _bitmap(picture: Picture) -> Plugin:
    bitmap = mi.Bitmap(np.ascontiguousarray(picture, dtype=np.float32))
    return {"type": "bitmap", "bitmap": bitmap, "raw": True, "filter_type": "bilinear", "wrap_mode": "repeat"}


def _glossy(colour: Plugin, roughness: float, *, metallic: float = 0.0) -> Plugin:
    """Return a surface under a coat; ``roughplastic`` looks the same but takes 25 ms to set up each time."""
    return {
        "type": "principled",
        "base_color": colour,
        "roughness": roughness,
        "specular": 0.5,
        "metallic": metallic,
    }


def _body(thing: Thing) -> Plugin:
    srgb = COLOURS[thing.colour]
    if thing.material == "metal":
        # Anodised: lighter than paint, because half of what it reflects is dark room.
        return _glossy(_rgb(np.clip(linear(srgb) * 1.25 + 0.03, 0, 0.95)), 0.2, metallic=0.95)
    if thing.material == "ceramic":
        return _glossy(_rgb(linear(srgb)), 0.14)
    if thing.material == "wooden":
        return _glossy(_bitmap(stain(srgb)), 0.6)
    if thing.material == "leather":
        grain = hide(srgb)
        return {
            "type": "bumpmap",
            "bsdf": _glossy(_bitmap(grain), 0.45),
            "arbitrary": _bitmap(grain / grain.mean(axis=(0, 1))),
            "scale": 0.08,
        }
    return _glossy(_rgb(linear(srgb)), 0.75)


def _part_material(thing: Thing, part: Part) -> Plugin:
    if part.role == "body":
        return _body(thing)
    if part.role == "board":
        picture = sign_board(thing.text or "", COLOURS[thing.colour])
        return {"type": "diffuse", "reflectance": _bitmap(picture[::-1])}
    if part.role == "steel":
        steel = _rgb(FIXED["steel"])
        return {"type": "roughconductor", "alpha": 0.2, "specular_reflectance": steel, "material": "none"}
    return _glossy(_rgb(FIXED[part.role]), 0.4)


def _mesh(name: str, part: Part, *, uv: Soup, bsdf: Plugin) -> mi.Mesh:
    props = mi.Properties()
    props["bsdf"] = mi.load_dict({"type": "twosided", "bsdf": bsdf})
    normals = corner_normals(part.soup) if part.normals is None else part.normals
    corners = part.soup.reshape(-1, 3).astype(np.float32)
    mesh = mi.Mesh(name, len(corners), len(part.soup), props=props, has_vertex_normals=True, has_vertex_texcoords=True)
    values = mi.traverse(mesh)
    values["vertex_positions"] = corners.ravel()
    values["faces"] = np.arange(len(corners), dtype=np.uint32)
    values["vertex_normals"] = normals.astype(np.float32).ravel()
    values["vertex_texcoords"] = uv.reshape(-1, 2).astype(np.float32).ravel()
    values.update()
    return mesh


def _board_uv(thing: Thing, part: Part) -> Soup:
    """Return the texture coordinates of a board: from its own left bottom corner to its right top one."""
    left = part.soup.reshape(-1, 3)[..., :2] - (thing.x, thing.y)
    along = left @ np.array([np.cos(thing.yaw), np.sin(thing.yaw)])
    height = part.soup.reshape(-1, 3)[..., 2]
    scaled = [(axis - axis.min()) / (axis.max() - axis.min()) for axis in (along, height)]
    return np.stack(scaled, axis=-1).reshape(-1, 3, 2)


def _thing_meshes(thing: Thing) -> dict[str, mi.Mesh]:
    meshes = {}
    for k, part in enumerate(thing.parts()):
        name = f"{thing.id}_{k}"
        uv = _board_uv(thing, part) if part.role == "board" else planar_uv(part.soup) / thing.scale
        meshes[name] = _mesh(name, part, uv=uv, bsdf=_part_material(thing, part))
    return meshes


@lru_cache(maxsize=8)
def _place_meshes(place: str, style: int) -> dict[str, mi.Mesh]:
    meshes = {}
    for k, surface in enumerate(surfaces_of(place, style)):
        colour = _rgb(surface.colour) if surface.picture is None else _bitmap(surface.picture)
        bsdf = {"type": "diffuse", "reflectance": colour}
        meshes[f"place_{k}"] = _mesh(f"place_{k}", Part("body", surface.soup), uv=surface.uv, bsdf=bsdf)
    return meshes


Triple = tuple[float, float, float]
KEYS: dict[str, Triple] = {"left": (-4.8, -1.2, 5.8), "right": (4.8, -1.2, 5.8), "above": (0.5, -0.8, 7.4)}


def _lights(light: Light) -> dict[str, Plugin]:
    """Return a large soft key light, a tall window across from it and an even sky (a gradient costs a fifth more time).

    The window is weak: it is there to be seen in what is glossy, by which metal and glaze are told from paint.
    """
    tint = np.array(TINTS[light.tint])
    power = 0.42 if light.dim else 1.0
    side = -5.5 if light.direction == "right" else 5.5
    return {
        "key": _panel(KEYS[light.direction], (0, 0.2, 0), size=(1.0, 1.0), radiance=68.0 * power * tint),
        "window": _panel((side, -2.5, 3.2), (0, 0.2, 0.2), size=(0.7, 1.6), radiance=7.0 * power * tint),
        "sky": {"type": "constant", "radiance": _rgb(0.42 * power * (0.5 + 0.5 * tint))},
    }


def _panel(origin: Triple, target: Triple, *, size: tuple[float, float], radiance: NDArray[np.float64]) -> Plugin:
    pose = mi.ScalarTransform4f().look_at(origin=list(origin), target=list(target), up=[0, 0.01, 1])
    return {
        "type": "rectangle",
        "to_world": pose @ mi.ScalarTransform4f().scale([*size, 1]),
        "emitter": {"type": "area", "radiance": _rgb(radiance)},
    }


def build_scene(scene: Scene) -> mi.Scene:
    """Return the renderer's scene; a part's mesh has the id "thing_part"."""
    meshes = {name: mesh for thing in scene.things for name, mesh in _thing_meshes(thing).items()}
    parts = {**meshes, **_place_meshes(scene.place, scene.style), **_lights(scene.light)}
    return mi.load_dict({"type": "scene", **parts}, optimize=False)


def _build_sensor(camera: Camera, samples: int) -> mi.Sensor:
    """Return the renderer's camera; the box filter keeps pixels independent of the order of samples."""
    field = math.degrees(2 * math.atan(camera.width / (2 * camera.focal)))
    pose = mi.ScalarTransform4f().look_at(origin=list(camera.position), target=list(TARGET), up=[0, 0, 1])
    film = {"type": "hdrfilm", "width": camera.width, "height": camera.height, "rfilter": {"type": "box"}}
    film |= {"pixel_format": "rgb", "component_format": "float32"}
    sampler = {"type": "multijitter", "sample_count": samples}
    return mi.load_dict(
        {"type": "perspective", "fov": field, "fov_axis": "x", "to_world": pose, "film": film, "sampler": sampler}
    )


BOUNCES = 3
"""Light that reaches things directly or over one other surface; a fourth costs a fifth more time and shows little."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What each pixel of a photograph shows, without light and noise."""

    names: tuple[str, ...]
    """Ids of the meshes."""
    shape: NDArray[np.int32]
    """Number of the mesh: ``names[k]`` has number k + 1; 0: none."""
    albedo: Plane
    normal: Plane

    def mask(self, thing: str) -> Mask:
        """Return the pixels that show a thing."""
        numbers = [k + 1 for k, name in enumerate(self.names) if name.split("_")[0] == thing]
        return np.isin(self.shape, numbers)

    def changed(self, after: Survey, things: set[str]) -> int:
        """Return how many pixels of these things, before or after, now show something else."""
        region = np.zeros(self.shape.shape, bool)
        for thing in things:
            region |= self.mask(thing) | after.mask(thing)
        other = np.array(["", *self.names])[self.shape] != np.array(["", *after.names])[after.shape]
        other |= np.abs(self.albedo - after.albedo).sum(axis=-1) > 0.2
        other |= np.abs(self.normal - after.normal).sum(axis=-1) > 0.5
        return int((other & region).sum())


def _render(built: mi.Scene, camera: Camera, integrator: Plugin, *, seed: int, samples: int) -> Plane:
    light = mi.render(
        built,
        sensor=_build_sensor(camera, samples),
        integrator=mi.load_dict(integrator),
        seed=mi.UInt32(seed),
        spp=samples,
    )
    return np.array(light, dtype=np.float32)


def survey(built: mi.Scene, camera: Camera, *, seed: int = 0) -> Survey:
    """Look once through every pixel."""
    channels = {"type": "aov", "aovs": "a:albedo,n:sh_normal,i:shape_index"}
    seen = _render(built, camera, channels, seed=seed, samples=1)
    names = tuple(shape.id() for shape in built.shapes())
    albedo, normal = (np.ascontiguousarray(seen[..., first : first + 3]) for first in (0, 3))
    return Survey(names, np.round(seen[..., 6]).astype(np.int32), albedo, normal)


def expose(built: mi.Scene, camera: Camera, *, samples: int, seed: int) -> Plane:
    """Gather the light of every pixel."""
    return _render(built, camera, {"type": "path", "max_depth": BOUNCES, "rr_depth": 8}, seed=seed, samples=samples)


def develop(light: Plane, seen: Survey) -> NDArray[np.uint8]:
    """Return the picture: without the noise of few samples (Open Image Denoise), its tones those of sRGB."""
    return tone_map(np.maximum(pyoidn.denoise(light, seen.albedo, seen.normal, hdr=True), 0))


def tone_map(light: Plane) -> NDArray[np.uint8]:
    """Return sRGB: linear up to 0.6, then a soft shoulder, which keeps hues and saves highlights."""
    knee = np.float32(0.6)
    soft = knee + (1 - knee) * (1 - np.exp(-(light - knee) / (1 - knee)))
    value = np.clip(np.where(light > knee, soft, light), 0, 1)
    srgb = np.where(value <= 0.0031308, 12.92 * value, 1.055 * np.power(value, 1 / 2.4) - 0.055)
    return np.round(srgb * 255).astype(np.uint8)
