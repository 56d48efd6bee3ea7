"""Render scenes: meshes, materials, lights and camera of a photograph, its light, its object index, its exposure.

Reads and writes nothing. Needs Open Image Denoise and Mitsuba, which gets its variant here and a
single thread, since the worker processes share the cores: import this module only to render.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import drjit
import mitsuba as mi
import numpy as np
import pyoidn
from numpy.typing import NDArray
from pydantic import TypeAdapter

from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.scenes.places import hide, linear, sign_board, stain, surfaces_of
from pairwright.tasks.scenes.shapes import ShapePiece, Soup, corner_normals, planar_uv
from pairwright.tasks.scenes.state import TARGET, Camera, Mask, Scene, Thing
from pairwright.tasks.scenes.vocabulary import COLOURS, TINTS, Light

mi.set_variant("scalar_rgb")
mi.set_log_level(mi.LogLevel.Error)
drjit.set_thread_count(1)

Plugin = dict[str, Any]
Plane = NDArray[np.float32]
FIXED = {
    "dark": (0.02, 0.02, 0.024), "pale": (0.82, 0.8, 0.74), "steel": (0.55, 0.56, 0.58), "glow": (0.95, 0.55, 0.12)
}  # fmt: skip


def _rgb(value: Any) -> Plugin:
    return {"type": "rgb", "value": [float(v) for v in value]}


@lru_cache(maxsize=256)
def _paint(of: Any, *which: Any) -> tuple[Any, ...]:
    """Return the cached textures of ``of(*which)``, which returns pictures or linear colours."""
    paints: list[Any] = []
    for one in map(np.asarray, of(*which)):
        if one.ndim == 1:
            paints.append(_rgb(one))
        else:
            bitmap = mi.Bitmap(np.ascontiguousarray(one, dtype=np.float32))
            texture = {"type": "bitmap", "bitmap": bitmap, "raw": True}
            paints.append(
                mi.load_dict({**texture, "filter_type": "bilinear", "wrap_mode": "repeat"})
            )
    return tuple(paints)


def _colours_of(colour: str, material: str, text: str = "") -> list[NDArray[Any]]:
    srgb = COLOURS[colour]
    if material == "board":
        return [sign_board(text, srgb)[::-1]]
    if material == "leather":
        return [hide(srgb), hide(srgb) / hide(srgb).mean(axis=(0, 1))]
    if (
        material == "metal"
    ):  # anodised: lighter than paint, because half of what it reflects is dark room
        return [np.clip(linear(srgb) * 1.25 + 0.03, 0, 0.95)]
    return [stain(srgb) if material == "wooden" else linear(srgb)]


def _place_of(place: str, style: int) -> list[NDArray[Any]]:
    surfaces = surfaces_of(place, style)
    return [np.asarray(one.colour) if one.picture is None else one.picture for one in surfaces]


def _glossy(colour: Any, roughness: float, *, metallic: float = 0.0) -> Plugin:
    """Return a coated surface; ``roughplastic`` looks the same but takes 25 ms to set up each time."""
    look = {"roughness": roughness, "specular": 0.5, "metallic": metallic}
    return {"type": "principled", "base_color": colour, **look}


ROUGHNESS = {
    "metal": (0.12, 0.34), "ceramic": (0.06, 0.24), "wooden": (0.35, 0.75), "leather": (0.3, 0.6), "rubber": (0.55, 0.9)
}  # fmt: skip
"""Roughness of a polished and of a worn thing."""


@dataclass(frozen=True, slots=True)
class Shell:
    """Mesh with its paint and reflectance."""

    soup: Soup
    normals: Soup
    """Of the corners."""
    uv: Soup
    paint: Any
    """Colour or texture."""
    bsdf: Plugin


def _shells(scene: Scene) -> Iterator[tuple[str, Shell]]:
    for thing in scene.things:
        for k, part in enumerate(thing.parts()):
            normals = corner_normals(part.soup) if part.normals is None else part.normals
            uv = (
                _board_uv(thing, part)
                if part.role == "board"
                else planar_uv(part.soup) / thing.scale
            )
            yield f"{thing.id}_{k}", Shell(part.soup, normals, uv, *_surface(thing, part))
    paints = _paint(_place_of, scene.place, scene.style)
    for k, (one, paint) in enumerate(
        zip(surfaces_of(scene.place, scene.style), paints, strict=True)
    ):
        bsdf = (
            _glossy(paint, one.roughness)
            if one.roughness
            else {"type": "diffuse", "reflectance": paint}
        )
        yield f"place_{k}", Shell(one.soup, corner_normals(one.soup), one.uv, paint, bsdf)


def _surface(thing: Thing, part: ShapePiece) -> tuple[Any, Plugin]:
    if part.role == "board":
        (paint,) = _paint(_colours_of, thing.colour, "board", thing.text or "")
        return paint, {"type": "diffuse", "reflectance": paint}
    if part.role == "steel":
        steel = _rgb(FIXED["steel"])
        return steel, {
            "type": "roughconductor",
            "alpha": 0.2,
            "specular_reflectance": steel,
            "material": "none",
        }
    if part.role != "body":
        return _rgb(FIXED[part.role]), _glossy(_rgb(FIXED[part.role]), 0.4)
    paint, *grain = _paint(_colours_of, thing.colour, thing.material)
    polished, worn = ROUGHNESS[thing.material]
    roughness = polished + thing.wear * (worn - polished)
    bsdf = _glossy(paint, roughness, metallic=0.95 * (thing.material == "metal"))
    if grain:
        bsdf = {"type": "bumpmap", "bsdf": bsdf, "arbitrary": grain[0], "scale": 0.08}
    return paint, bsdf


def _board_uv(thing: Thing, part: ShapePiece) -> Soup:
    """Return the texture coordinates of a board, from its left bottom corner to its right top one."""
    left = part.soup.reshape(-1, 3)[..., :2] - (thing.x, thing.y)
    along = left @ np.array([np.cos(thing.yaw), np.sin(thing.yaw)])
    height = part.soup.reshape(-1, 3)[..., 2]
    scaled = [(axis - axis.min()) / (axis.max() - axis.min()) for axis in (along, height)]
    return np.stack(scaled, axis=-1).reshape(-1, 3, 2)


def _mesh(
    name: str, shell: Shell, plugin: str, made: Plugin, *, attribute: Soup | None = None
) -> mi.Mesh:
    """Return the mesh with a material, or a flat emitter; ``attribute``: values at its vertices."""
    props = mi.Properties()
    props[plugin] = mi.load_dict(made)
    smooth = plugin == "bsdf"
    corners = shell.soup.reshape(-1, 3).astype(np.float32)
    mesh = mi.Mesh(
        name,
        len(corners),
        len(shell.soup),
        props=props,
        has_vertex_normals=smooth,
        has_vertex_texcoords=True,
    )
    if attribute is not None:
        mesh.add_attribute("vertex_look", 3, attribute.ravel().tolist())
    values = mi.traverse(mesh)
    values["vertex_positions"] = corners.ravel()
    values["faces"] = np.arange(len(corners), dtype=np.uint32)
    if smooth:
        values["vertex_normals"] = shell.normals.astype(np.float32).ravel()
    values["vertex_texcoords"] = shell.uv.reshape(-1, 2).astype(np.float32).ravel()
    values.update()
    return mesh


Triple = tuple[float, float, float]
KEYS: dict[str, Triple] = {
    "left": (-4.8, -1.2, 5.8),
    "right": (4.8, -1.2, 5.8),
    "above": (0.5, -0.8, 7.4),
}


def _lights(light: Light) -> dict[str, Plugin]:
    """Return a large soft key light, a tall window opposite and an even sky (a gradient costs a fifth more time).

    The weak window is reflected in glossy surfaces, which distinguishes metal and glaze from paint.
    """
    tint = np.array(TINTS[light.tint])
    power = 0.42 if light.dim else 1.0
    side = -5.5 if light.direction == "right" else 5.5
    return {
        "key": _panel(
            KEYS[light.direction], (0, 0.2, 0), size=(1.0, 1.0), radiance=68.0 * power * tint
        ),
        "window": _panel(
            (side, -2.5, 3.2), (0, 0.2, 0.2), size=(0.7, 1.6), radiance=7.0 * power * tint
        ),
        "sky": {"type": "constant", "radiance": _rgb(0.42 * power * (0.5 + 0.5 * tint))},
    }


def _panel(
    origin: Triple, target: Triple, *, size: tuple[float, float], radiance: NDArray[np.float64]
) -> Plugin:
    pose = mi.ScalarTransform4f().look_at(origin=list(origin), target=list(target), up=[0, 0.01, 1])
    return {
        "type": "rectangle",
        "to_world": pose @ mi.ScalarTransform4f().scale([*size, 1]),
        "emitter": {"type": "area", "radiance": _rgb(radiance)},
    }


def build_scene(scene: Scene) -> mi.Scene:
    """Return the renderer's scene, with materials and lights."""
    meshes = {
        name: _mesh(name, shell, "bsdf", {"type": "twosided", "bsdf": shell.bsdf})
        for name, shell in _shells(scene)
    }
    return mi.load_dict({"type": "scene", **meshes, **_lights(scene.light)}, optimize=False)


def _build_sensor(camera: Camera, samples: int) -> mi.Sensor:
    """Return the renderer's camera; with the box filter, pixels do not depend on the order of samples."""
    field = math.degrees(2 * math.atan(camera.width / (2 * camera.focal)))
    pose = mi.ScalarTransform4f().look_at(
        origin=list(camera.position), target=list(TARGET), up=[0, 0, 1]
    )
    film = {
        "type": "hdrfilm",
        "width": camera.width,
        "height": camera.height,
        "rfilter": {"type": "box"},
    }
    film |= {"pixel_format": "rgb", "component_format": "float32"}
    sampler = {"type": "multijitter", "sample_count": samples}
    return mi.load_dict(
        {
            "type": "perspective",
            "fov": field,
            "fov_axis": "x",
            "to_world": pose,
            "film": film,
            "sampler": sampler,
        }
    )


BOUNCES = 3
"""Direct light and light over one other surface; a fourth bounce costs a fifth more time and shows
little."""
GLARE = np.float32(2)
"""Limit of a pixel's light (white is 1): a spark of few paths would stay as a spot."""


@dataclass(frozen=True, slots=True)
class Survey:
    """Object index of a photograph: content of each pixel, without light and noise."""

    names: tuple[str, ...]
    """Ids of the meshes, "thing_part"."""
    shape: NDArray[np.int32]
    """Number of the mesh at the pixel: ``names[k]`` has number k + 1; 0: none."""
    normal: Plane
    """Two components of the surface normal at the pixel."""
    albedo: Plane
    """Mean colour over the pixel."""

    def mask(self, *things: str) -> Mask:
        """Return the pixels of some things."""
        numbers = [k + 1 for k, name in enumerate(self.names) if name.split("_")[0] in things]
        return np.isin(self.shape, numbers)

    def changed(self, after: Survey, things: set[str]) -> int:
        """Return the number of pixels of these things, before or after, that differ."""
        region = self.mask(*things) | after.mask(*things)
        other = np.array(["", *self.names])[self.shape] != np.array(["", *after.names])[after.shape]
        other |= np.abs(self.albedo - after.albedo).sum(axis=-1) > 0.2
        other |= np.abs(self.normal - after.normal).sum(axis=-1) > 0.5
        return int((other & region).sum())


def _render(built: mi.Scene, camera: Camera, *, depth: int, seed: int, samples: int) -> Plane:
    light = mi.render(
        built,
        sensor=_build_sensor(camera, samples),
        integrator=mi.load_dict({"type": "path", "max_depth": depth, "rr_depth": 8}),
        seed=mi.UInt32(seed),
        spp=samples,
    )
    return np.array(light, dtype=np.float32)


def survey(scene: Scene, camera: Camera) -> Survey:
    """Return the object index; the renderer's ``aov`` takes three times as long."""
    shells = dict(_shells(scene))
    looks = {}
    for number, (name, shell) in enumerate(shells.items(), 1):
        seen = _towards(shell, camera)
        look = np.concatenate(
            [np.full((*seen.normals.shape[:2], 1), number), seen.normals[..., :2] + 1], axis=-1
        )
        plain = {"type": "mesh_attribute", "name": "vertex_look"}
        looks[name] = _mesh(
            name, seen, "emitter", {"type": "area", "radiance": plain}, attribute=look
        )
    look = _shine(looks, camera, samples=1)
    shape, normal = np.round(look[..., 0]).astype(np.int32), look[..., 1:] - 1
    return Survey(tuple(shells), shape, normal, survey_colours(scene, camera))


def survey_colours(scene: Scene, camera: Camera) -> Plane:
    """Return the mean surface colour at each pixel; the denoiser keeps its edges."""
    meshes = {
        name: _mesh(
            name, _towards(shell, camera), "emitter", {"type": "area", "radiance": shell.paint}
        )
        for name, shell in _shells(scene)
    }
    return _shine(meshes, camera, samples=4)  # enough for smooth edges


def _shine(meshes: dict[str, mi.Mesh], camera: Camera, *, samples: int) -> Plane:
    built = mi.load_dict({"type": "scene", **meshes}, optimize=False)
    return _render(built, camera, depth=1, seed=0, samples=samples)


def _towards(shell: Shell, camera: Camera) -> Shell:
    """Return the mesh with all triangles turned towards the camera, since emitters shine to one side."""
    edges = shell.soup[:, 1:] - shell.soup[:, :1]
    faces = np.cross(edges[:, 0], edges[:, 1])
    away = ((camera.position - shell.soup[:, 0]) * faces).sum(axis=1) < 0
    order = np.where(away[:, None], [0, 2, 1], [0, 1, 2])[..., None]
    soup, normals, uv = (
        np.take_along_axis(one.reshape(len(order), 3, -1), order, axis=1)
        for one in (shell.soup, shell.normals, shell.uv)
    )
    return replace(shell, soup=soup, normals=normals, uv=uv)


def expose(built: mi.Scene, camera: Camera, *, samples: int, seed: int) -> Plane:
    """Return the light of every pixel; its noise depends on the seed alone."""
    return np.minimum(_render(built, camera, depth=BOUNCES, seed=seed, samples=samples), GLARE)


def develop(light: Plane, albedo: Plane) -> NDArray[np.uint8]:
    """Return the picture, denoised (Open Image Denoise) and toned to sRGB."""
    return tone_map(np.maximum(pyoidn.denoise(light, albedo, None, hdr=True), 0))


KNEE = np.float32(0.6)


def tone_map(light: Plane) -> NDArray[np.uint8]:
    """Return sRGB: linear up to 0.6, then a soft shoulder that keeps hues and highlights."""
    soft = KNEE + (1 - KNEE) * (1 - np.exp(-(light - KNEE) / (1 - KNEE)))
    value = np.clip(np.where(light > KNEE, soft, light), 0, 1)
    srgb = np.where(value <= 0.0031308, 12.92 * value, 1.055 * np.power(value, 1 / 2.4) - 0.055)
    return np.round(srgb * 255).astype(np.uint8)


def linear_of(picture: NDArray[np.uint8]) -> Plane:
    """Return the light of a picture, the inverse of ``tone_map``."""
    srgb = np.minimum(picture.astype(np.float32) / 255, 254.5 / 255)
    value = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    soft = KNEE - (1 - KNEE) * np.log((1 - value) / (1 - KNEE))
    return np.where(value > KNEE, soft, value).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Exposure:
    """Settings of a photograph; with the versions of renderer and denoiser, they decide its pixels."""

    scene: Scene
    width: int
    height: int
    samples: int
    seed: int

    @property
    def camera(self) -> Camera:
        """Return the camera."""
        return Camera(self.scene.view, self.width, self.height)

    def without(self, *things: str) -> Exposure:
        """Return the exposure of the scene without some things."""
        return replace(self, scene=self.scene.without(*things))

    def light(self) -> Plane:
        """Return the noisy light of every pixel; the noise is equal wherever a change of the scene alters nothing."""
        return expose(build_scene(self.scene), self.camera, samples=self.samples, seed=self.seed)

    def take(self, albedo: Plane | None = None) -> NDArray[np.uint8]:
        """Return the picture ``(height, width, 3)``; ``albedo``: the scene's colours, if known."""
        return develop(
            self.light(), survey_colours(self.scene, self.camera) if albedo is None else albedo
        )


EXPOSURES = TypeAdapter(Exposure)


def exposure_of(graph: SceneGraph | None) -> Exposure | None:
    """Return the exposure of a rendered photograph; ``None`` for others."""
    return EXPOSURES.validate_json(graph.exposure) if graph and graph.exposure else None
