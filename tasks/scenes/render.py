"""Render scenes: meshes, materials, lights, camera, object index and exposure of a photograph.

Reads and writes nothing. Needs Open Image Denoise and Mitsuba, which gets its variant here and a
single thread, since the worker processes share the cores: import this module only to render.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
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
from pairwright.tasks.scenes.meshes import Soup, corner_normals, planar_uv
from pairwright.tasks.scenes.pictures import hide, linear_colour, sign_board, stain
from pairwright.tasks.scenes.places import surfaces_of
from pairwright.tasks.scenes.shapes import ShapePiece
from pairwright.tasks.scenes.state import TARGET, Camera, Mask, Scene, Thing
from pairwright.tasks.scenes.vocabulary import COLOURS, TINTS, Light

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
    return {"type": "rgb", "value": [float(channel) for channel in value]}


@lru_cache(maxsize=256)
def _paint(make_pictures: Any, *arguments: Any) -> tuple[Any, ...]:
    """Return the cached textures of a function's pictures or linear colours."""
    return tuple(_texture(np.asarray(picture)) for picture in make_pictures(*arguments))


def _texture(picture: NDArray[Any]) -> Any:
    if picture.ndim == 1:
        return _rgb(picture)
    bitmap = mi.Bitmap(np.ascontiguousarray(picture, dtype=np.float32))
    return mi.load_dict(
        {
            "type": "bitmap",
            "bitmap": bitmap,
            "raw": True,
            "filter_type": "bilinear",
            "wrap_mode": "repeat",
        }
    )


def _colours_of(colour: str, material: str, text: str = "") -> list[NDArray[Any]]:
    """Return the colour of a material, or its picture; of leather also its bumps."""
    srgb = COLOURS[colour]
    if material == "board":
        return [sign_board(text, srgb)[::-1]]
    if material == "leather":
        leather = hide(srgb)
        return [leather, leather / leather.mean(axis=(0, 1))]
    if material == "metal":
        # Anodised: lighter than paint, because half of what it reflects is dark room.
        return [np.clip(linear_colour(srgb) * 1.25 + 0.03, 0, 0.95)]
    return [stain(srgb) if material == "wooden" else linear_colour(srgb)]


def _place_of(place: str, style: int) -> list[NDArray[Any]]:
    pictures: list[NDArray[Any]] = []
    for surface in surfaces_of(place, style):
        picture = surface.picture
        pictures.append(np.asarray(surface.colour) if picture is None else picture)
    return pictures


def _glossy(colour: Any, roughness: float, *, metallic: float = 0.0) -> Plugin:
    """Return a coated surface; ``roughplastic`` looks the same but takes 25 ms to set up."""
    return {
        "type": "principled",
        "base_color": colour,
        "roughness": roughness,
        "specular": 0.5,
        "metallic": metallic,
    }


def _matt(paint: Any) -> Plugin:
    return {"type": "diffuse", "reflectance": paint}


ROUGHNESS = {
    "metal": (0.12, 0.34),
    "ceramic": (0.06, 0.24),
    "wooden": (0.35, 0.75),
    "leather": (0.3, 0.6),
    "rubber": (0.55, 0.9),
}
"""Roughness of a polished and of a worn object."""


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
    yield from _thing_shells(scene.things)
    surfaces = surfaces_of(scene.place, scene.style)
    paints = _paint(_place_of, scene.place, scene.style)
    for index, (surface, paint) in enumerate(zip(surfaces, paints, strict=True)):
        bsdf = _glossy(paint, surface.roughness) if surface.roughness else _matt(paint)
        normals = corner_normals(surface.soup)
        yield f"place_{index}", Shell(surface.soup, normals, surface.uv, paint, bsdf)


def _thing_shells(things: Iterable[Thing]) -> Iterator[tuple[str, Shell]]:
    for item in things:
        for index, part in enumerate(item.parts()):
            yield f"{item.id}_{index}", _part_shell(item, part)


def _part_shell(item: Thing, part: ShapePiece) -> Shell:
    normals = corner_normals(part.soup) if part.normals is None else part.normals
    uv = _board_uv(item, part) if part.role == "board" else planar_uv(part.soup) / item.scale
    paint, bsdf = _surface(item, part)
    return Shell(part.soup, normals, uv, paint, bsdf)


def _surface(item: Thing, part: ShapePiece) -> tuple[Any, Plugin]:
    """Return the paint and the reflectance of a part."""
    if part.role == "body":
        return _body_surface(item)
    if part.role == "board":
        (paint,) = _paint(_colours_of, item.colour, "board", item.text or "")
        return paint, _matt(paint)
    paint = _rgb(FIXED[part.role])
    if part.role != "steel":
        return paint, _glossy(paint, 0.4)
    bsdf = {
        "type": "roughconductor",
        "alpha": 0.2,
        "specular_reflectance": paint,
        "material": "none",
    }
    return paint, bsdf


def _body_surface(item: Thing) -> tuple[Any, Plugin]:
    paint, *grain = _paint(_colours_of, item.colour, item.material)
    polished, worn = ROUGHNESS[item.material]
    roughness = polished + item.wear * (worn - polished)
    metallic = 0.95 if item.material == "metal" else 0.0
    bsdf = _glossy(paint, roughness, metallic=metallic)
    if grain:
        bsdf = {
            "type": "bumpmap",
            "bsdf": bsdf,
            "arbitrary": grain[0],
            "scale": 0.08,
        }
    return paint, bsdf


def _board_uv(item: Thing, part: ShapePiece) -> Soup:
    """Return the texture coordinates of a board, from its left lower corner to its right upper."""
    corners = part.soup.reshape(-1, 3)
    direction = np.array([np.cos(item.yaw), np.sin(item.yaw)])
    u = _stretch((corners[..., :2] - (item.x, item.y)) @ direction)
    v = _stretch(corners[..., 2])
    return np.stack([u, v], axis=-1).reshape(-1, 3, 2)


def _stretch(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return (values - values.min()) / (values.max() - values.min())


def _mesh(
    name: str,
    shell: Shell,
    plugin: str,
    settings: Plugin,
    *,
    attribute: Soup | None = None,
) -> mi.Mesh:
    """Return the mesh with a material, or a flat emitter; ``attribute``: values at its vertices."""
    props = mi.Properties()
    props[plugin] = mi.load_dict(settings)
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


def place_lights(light: Light) -> dict[str, Plugin]:
    """Return a large soft key light, a tall window opposite and an even sky.

    A gradient in the sky would cost a fifth more time. The weak window is reflected in glossy
    surfaces, which distinguishes metal and glaze from paint.
    """
    tint = np.array(TINTS[light.tint])
    power = 0.42 if light.dim else 1.0
    window_x = -5.5 if light.direction == "right" else 5.5
    sky = 0.42 * power * (0.5 + 0.5 * tint)
    return {
        "key": _panel(
            KEYS[light.direction],
            (0, 0.2, 0),
            size=(1.0, 1.0),
            radiance=68.0 * power * tint,
        ),
        "window": _panel(
            (window_x, -2.5, 3.2),
            (0, 0.2, 0.2),
            size=(0.7, 1.6),
            radiance=7.0 * power * tint,
        ),
        "sky": {"type": "constant", "radiance": _rgb(sky)},
    }


def _panel(
    origin: Triple,
    target: Triple,
    *,
    size: tuple[float, float],
    radiance: NDArray[np.float64],
) -> Plugin:
    pose = mi.ScalarTransform4f().look_at(
        origin=list(origin),
        target=list(target),
        up=[0, 0.01, 1],
    )
    scale = mi.ScalarTransform4f().scale([*size, 1])
    return {
        "type": "rectangle",
        "to_world": pose @ scale,
        "emitter": {"type": "area", "radiance": _rgb(radiance)},
    }


def build_scene(scene: Scene) -> mi.Scene:
    """Return the renderer's scene, with materials and lights."""
    meshes = _mesh_shells(_shells(scene))
    return mi.load_dict({"type": "scene", **meshes, **place_lights(scene.light)}, optimize=False)


def mesh_things(things: Iterable[Thing]) -> dict[str, mi.Mesh]:
    """Return the meshes of some objects, with their materials."""
    return _mesh_shells(_thing_shells(things))


def _mesh_shells(shells: Iterable[tuple[str, Shell]]) -> dict[str, mi.Mesh]:
    meshes: dict[str, mi.Mesh] = {}
    for name, shell in shells:
        meshes[name] = _mesh(name, shell, "bsdf", {"type": "twosided", "bsdf": shell.bsdf})
    return meshes


def _build_sensor(camera: Camera, samples: int) -> mi.Sensor:
    """Return the renderer's camera; by the box filter, pixels ignore the order of samples."""
    field = math.degrees(2 * math.atan(camera.width / (2 * camera.focal)))
    pose = mi.ScalarTransform4f().look_at(
        origin=list(camera.position),
        target=list(TARGET),
        up=[0, 0, 1],
    )
    film = {
        "type": "hdrfilm",
        "width": camera.width,
        "height": camera.height,
        "rfilter": {"type": "box"},
        "pixel_format": "rgb",
        "component_format": "float32",
    }
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
    """Number of the mesh at the pixel: ``names[index]`` has number index + 1; 0: none."""
    normal: Plane
    """Two components of the surface normal at the pixel."""
    albedo: Plane
    """Mean colour over the pixel."""

    def mask(self, *object_ids: str) -> Mask:
        """Return the pixels of some objects."""
        numbers: list[int] = []
        for number, name in enumerate(self.names, 1):
            object_id, *_ = name.split("_")
            if object_id in object_ids:
                numbers.append(number)
        return np.isin(self.shape, numbers)

    def count_changed(self, after: Survey, object_ids: set[str]) -> int:
        """Return the number of pixels of these objects, before or after, that differ."""
        region = self.mask(*object_ids) | after.mask(*object_ids)
        differs = self._names_at_pixels() != after._names_at_pixels()
        differs |= np.abs(self.albedo - after.albedo).sum(axis=-1) > 0.2
        differs |= np.abs(self.normal - after.normal).sum(axis=-1) > 0.5
        return int((differs & region).sum())

    def _names_at_pixels(self) -> NDArray[np.str_]:
        return np.array(["", *self.names])[self.shape]


def _render(
    built: mi.Scene,
    camera: Camera,
    *,
    depth: int,
    seed: int,
    samples: int,
) -> Plane:
    integrator = mi.load_dict({"type": "path", "max_depth": depth, "rr_depth": 8})
    light = mi.render(
        built,
        sensor=_build_sensor(camera, samples),
        integrator=integrator,
        seed=mi.UInt32(seed),
        spp=samples,
    )
    return np.array(light, dtype=np.float32)


def _emitter(radiance: Any) -> Plugin:
    return {"type": "area", "radiance": radiance}


def survey(scene: Scene, camera: Camera) -> Survey:
    """Return the object index; the renderer's ``aov`` takes three times as long."""
    shells = dict(_shells(scene))
    emitter = _emitter({"type": "mesh_attribute", "name": "vertex_look"})
    meshes: dict[str, mi.Mesh] = {}
    for number, (name, shell) in enumerate(shells.items(), 1):
        towards = _towards(shell, camera)
        normals = towards.normals[..., :2] + 1
        numbers = np.full((*normals.shape[:2], 1), number)
        look = np.concatenate([numbers, normals], axis=-1)
        meshes[name] = _mesh(
            name,
            towards,
            "emitter",
            emitter,
            attribute=look,
        )
    look = _shine(meshes, camera, samples=1)
    shape = np.round(look[..., 0]).astype(np.int32)
    normal = look[..., 1:] - 1
    return Survey(tuple(shells), shape, normal, survey_colours(scene, camera))


def survey_colours(scene: Scene, camera: Camera) -> Plane:
    """Return the mean surface colour at each pixel; the denoiser keeps its edges."""
    meshes: dict[str, mi.Mesh] = {}
    for name, shell in _shells(scene):
        meshes[name] = _mesh(name, _towards(shell, camera), "emitter", _emitter(shell.paint))
    return _shine(meshes, camera, samples=4)  # enough for smooth edges


def glow_things(
    things: Iterable[Thing],
    camera: Camera,
    *,
    background: float = 0.0,
    white: bool = False,
    samples: int = 4,
) -> Plane:
    """Return the mean colour of some objects at each pixel, or white, before a grey background."""
    emission = _rgb((1, 1, 1))
    meshes: dict[str, mi.Mesh] = {}
    for name, shell in _thing_shells(things):
        paint = emission if white else shell.paint
        meshes[name] = _mesh(name, _towards(shell, camera), "emitter", _emitter(paint))
    lights: dict[str, Any] = dict(meshes)
    if background:
        lights["sky"] = {"type": "constant", "radiance": _rgb([background] * 3)}
    return _shine(lights, camera, samples=samples)


def _shine(meshes: dict[str, Any], camera: Camera, *, samples: int) -> Plane:
    """Return the light of emitters alone."""
    built = mi.load_dict({"type": "scene", **meshes}, optimize=False)
    return _render(
        built,
        camera,
        depth=1,
        seed=0,
        samples=samples,
    )


def _towards(shell: Shell, camera: Camera) -> Shell:
    """Return the mesh with all triangles turned to the camera: emitters shine to one side."""
    edges = shell.soup[:, 1:] - shell.soup[:, :1]
    faces = np.cross(edges[:, 0], edges[:, 1])
    away = ((camera.position - shell.soup[:, 0]) * faces).sum(axis=1) < 0
    order = np.where(away[:, None], [0, 2, 1], [0, 1, 2])[..., None]
    return replace(
        shell,
        soup=_reorder(shell.soup, order),
        normals=_reorder(shell.normals, order),
        uv=_reorder(shell.uv, order),
    )


def _reorder(corners: Soup, order: NDArray[np.int64]) -> Soup:
    return np.take_along_axis(corners.reshape(len(order), 3, -1), order, axis=1)


def expose(
    built: mi.Scene,
    camera: Camera,
    *,
    samples: int,
    seed: int,
) -> Plane:
    """Return the light of every pixel; its noise depends on the seed alone."""
    light = _render(
        built,
        camera,
        depth=BOUNCES,
        seed=seed,
        samples=samples,
    )
    return np.minimum(light, GLARE)


def develop(light: Plane, albedo: Plane) -> NDArray[np.uint8]:
    """Return the picture, denoised (Open Image Denoise) and toned to sRGB."""
    denoised = pyoidn.denoise(
        light,
        albedo,
        None,
        hdr=True,
    )
    return tone_map(np.maximum(denoised, 0))


KNEE = np.float32(0.6)


def tone_map(light: Plane) -> NDArray[np.uint8]:
    """Return sRGB: linear up to 0.6, then a soft shoulder that keeps hues and highlights."""
    return np.round(tone_levels(light)).astype(np.uint8)


def tone_levels(light: Plane) -> Plane:
    """Return the levels of ``tone_map``, not rounded."""
    soft = KNEE + (1 - KNEE) * (1 - np.exp(-(light - KNEE) / (1 - KNEE)))
    return srgb_levels(np.where(light > KNEE, soft, light))


def srgb_levels(light: Plane) -> Plane:
    """Return the sRGB levels of light from 0 to 1, not rounded."""
    value = np.clip(light, 0, 1)
    srgb = np.where(value <= 0.0031308, 12.92 * value, 1.055 * np.power(value, 1 / 2.4) - 0.055)
    return srgb * 255


def linear_of(picture: NDArray[np.uint8]) -> Plane:
    """Return the light of a picture, the inverse of ``tone_map``."""
    srgb = np.minimum(picture.astype(np.float32) / 255, 254.5 / 255)
    value = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    soft = KNEE - (1 - KNEE) * np.log((1 - value) / (1 - KNEE))
    return np.where(value > KNEE, soft, value).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Exposure:
    """Settings of a photograph, which decide its pixels by the versions of Mitsuba and denoiser."""

    scene: Scene
    width: int
    height: int
    samples: int
    seed: int

    @property
    def camera(self) -> Camera:
        """Return the camera."""
        return Camera(self.scene.view, self.width, self.height)

    def without(self, *object_ids: str) -> Exposure:
        """Return the exposure of the scene without some objects."""
        return replace(self, scene=self.scene.without(*object_ids))

    def light(self) -> Plane:
        """Return the noisy light of every pixel.

        The noise is equal wherever a change of the scene alters nothing.
        """
        built = build_scene(self.scene)
        return expose(
            built,
            self.camera,
            samples=self.samples,
            seed=self.seed,
        )

    def expose(self, albedo: Plane | None = None) -> NDArray[np.uint8]:
        """Return the picture ``(height, width, 3)``; ``albedo``: the scene's colours, if known."""
        light = self.light()
        if albedo is None:
            albedo = survey_colours(self.scene, self.camera)
        return develop(light, albedo)


EXPOSURES = TypeAdapter(Exposure)


def exposure_of(graph: SceneGraph | None) -> Exposure | None:
    """Return the exposure of a rendered photograph; ``None`` for others."""
    if graph is None or not graph.exposure:
        return None
    return EXPOSURES.validate_json(graph.exposure)
