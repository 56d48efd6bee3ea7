"""LaMa from a TorchScript file: what it sees, what comes back, and which programs do not run."""

import hashlib
import pickle
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from pairwright.schemas.config import RemovalsConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.removing import LamaConfig
from pairwright.tasks.models.lama import inpainter as module
from pairwright.tasks.models.lama.inpainter import PUBLISHED, LamaInpainter, pin_lama
from tests.fixtures.hostile_checkpoints import write_payloads
from tests.fixtures.lama_checkpoints import (
    Convolutions,
    Fourier,
    Halves,
    HoleMean,
    Nothing,
    OneArgument,
    Ramp,
    write_lama,
    write_marker,
)

NOISE = np.random.default_rng(0).integers(0, 256, (250, 333, 3), dtype=np.uint8)
WINDOWS = [(0, 0, 40, 30), (293, 220, 333, 250), (140, 0, 170, 200), (100, 100, 101, 101), (5, 60, 300, 90)]


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    module._load.cache_clear()


def inpainter(path, network=None, *, batch=0, traced=False, **config):
    sha256 = write_lama(path, network, traced=traced)
    pinned = pin_lama(LamaConfig(checkpoint=str(path), sha256=sha256), download=False)
    return LamaInpainter(config=RemovalsConfig(inpainter="lama", lama=pinned, batch_size=batch, **config))


def discs(windows):
    """Return an ellipse in each window."""
    for x0, y0, x1, y1 in windows:
        rows, columns = np.indices((y1 - y0, x1 - x0))
        h, w = max(y1 - y0 - 1, 1) / 2, max(x1 - x0 - 1, 1) / 2
        yield ((rows - h) / h) ** 2 + ((columns - w) / w) ** 2 <= 1.0001 if (y1 - y0) > 1 else np.ones((1, 1), bool)


def prepared(model, image=NOISE, windows=WINDOWS):
    return [model.prepare(image, hole, window) for hole, window in zip(discs(windows), windows, strict=True)]


def simple_lama(path, crop, hole):
    """Do what simple-lama-inpainting 0.1.2 does with an image and a mask, and crop its padding off."""
    network = torch.jit.load(path).eval()
    more = ((0, 0), (0, -crop.shape[0] % 8), (0, -crop.shape[1] % 8))
    image = np.pad(crop.transpose(2, 0, 1).astype(np.float32) / 255, more, mode="symmetric")
    mask = np.pad(hole[None].astype(np.float32), more, mode="symmetric")
    with torch.inference_mode():
        made = network(torch.from_numpy(image)[None], (torch.from_numpy(mask)[None] > 0) * 1)[0]
    return np.clip(made.permute(1, 2, 0).numpy() * 255, 0, 255).astype(np.uint8)[: crop.shape[0], : crop.shape[1]]


@pytest.mark.filterwarnings("ignore:`torch.jit.load` is deprecated")
def test_pixels_are_those_of_simple_lama(tmp_path):
    # 90 x 101 pixels are seen whole, and padded to 96 x 104: what that package does with the image.
    model, image, window = inpainter(tmp_path / "lama.pt"), NOISE[:90, :101], (30, 20, 70, 60)
    (hole,) = discs([window])
    whole = np.zeros((90, 101), dtype=bool)
    whole[20:60, 30:70] = hole
    (got,) = model.fill([model.prepare(image, hole, window)])
    assert np.array_equal(got, simple_lama(tmp_path / "lama.pt", image, whole)[20:60, 30:70])
    assert (np.abs(got.astype(int) - image[20:60, 30:70])[hole] > 0).mean() > 0.9


def test_a_hole_takes_what_is_around_it_and_nothing_of_itself(tmp_path):
    # Everything around is (40, 80, 120); the hole is (255, 0, 0), and its mean over all would be another.
    image = np.full((70, 90, 3), (40, 80, 120), dtype=np.uint8)
    model, window = inpainter(tmp_path / "mean.pt", HoleMean()), (20, 10, 60, 50)
    (hole,) = discs([window])
    image[10:50, 20:60][hole] = (255, 0, 0)
    (got,) = model.fill([model.prepare(image, hole, window)])
    assert np.abs(got.astype(int) - (40, 80, 120)).max() <= 1


def test_fillings_come_back_to_their_places(tmp_path):
    # The network writes each pixel's row and column in the crop.
    model = inpainter(tmp_path / "ramp.pt", Ramp())
    crops = prepared(model)
    for got, crop, hole in zip(model.fill(crops), crops, discs(WINDOWS), strict=True):
        rows, columns = np.indices(crop.size)
        wanted = np.minimum(np.stack([rows, columns, np.full(crop.size, 255)], axis=2)[crop.place], 255)
        assert np.abs(got.astype(int) - wanted)[hole].max() <= 1  # v / 255 * 255, cut
        assert np.array_equal(got[~hole], crop.pixels[:, :, :3][crop.place][~hole])


@pytest.mark.parametrize(("network", "traced"), [(Convolutions, False), (Fourier, True), (Fourier, False)])
@pytest.mark.parametrize("batch", [0, 2, 7])
def test_batches_give_what_single_crops_give(tmp_path, batch, network, traced):
    torch.manual_seed(0)
    model = inpainter(tmp_path / "lama.pt", network(), batch=batch, traced=traced)
    crops = prepared(model) * 5
    assert len({crop.pixels.shape for crop in crops}) > 1
    together = list(model.fill(crops))
    module._load.cache_clear()
    for one, made in zip(crops, together, strict=True):
        (alone,) = model.fill([one])
        assert made.shape == alone.shape
        assert np.abs(made.astype(int) - alone).max() <= 1


def test_crops_of_one_size_go_through_the_network_together(tmp_path, monkeypatch):
    sizes = []
    run = module.Lama.run
    monkeypatch.setattr(module.Lama, "run", lambda self, crops: sizes.append(len(crops)) or run(self, crops))
    model = inpainter(tmp_path / "lama.pt", batch=8)
    image = np.zeros((600, 600, 3), dtype=np.uint8)
    windows = [(x, y, x + 9, y + 9) for x in range(200, 400, 50) for y in range(200, 400, 50)]
    assert len(list(model.fill(prepared(model, image, windows)))) == 16
    assert sizes == [2, 8, 8]  # two to try it


def test_what_does_not_fit_is_halved(tmp_path, monkeypatch):
    # A device with room for three crops: eight, then four are too many.
    run = module.Lama.run

    def cramped(self, crops):
        if len(crops) > 3:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
        return run(self, crops)

    model = inpainter(tmp_path / "lama.pt", batch=8)
    crops = prepared(model, windows=[WINDOWS[0]] * 9)
    wanted = list(model.fill(crops))
    monkeypatch.setattr(module.Lama, "run", cramped)
    module._load.cache_clear()
    assert all(np.abs(a.astype(int) - b).max() <= 1 for a, b in zip(model.fill(crops), wanted, strict=True))


@pytest.mark.filterwarnings("ignore:`torch.jit.load` is deprecated")
def test_batches_are_bounded_by_their_pixels(tmp_path):
    path = tmp_path / "lama.pt"
    write_lama(path)
    network = torch.jit.load(path).eval()
    on_gpu = module.Lama(network=network, device=torch.device("cuda"))
    # 64 million pixels: 1,023 crops of 256 x 255, 64 of 1,024 x 1,023, and one of 8,192 x 8,192 all the same.
    assert [on_gpu.sized(shape)._most for shape in ((256, 255), (1024, 1023), (8192, 8192))] == [512, 64, 1]
    assert on_gpu.sized((1024, 1023)) is on_gpu.sized((1000, 1000))
    on_cpu = module.Lama(network=network, device=torch.device("cpu"))
    assert on_cpu.sized((64, 64)).size == 1
    assert module.Lama(network=network, device=torch.device("cpu"), fixed=5).sized((64, 64)).size == 5


def test_large_holes_are_filled_at_a_smaller_scale(tmp_path):
    # The network writes rows and columns of what it sees: shrunk by two, 300 rows are 0 to 149.
    image = np.zeros((300, 400, 3), dtype=np.uint8)
    model = inpainter(tmp_path / "ramp.pt", Ramp(), max_side=200, context=1.0)
    (got,) = model.fill([model.prepare(image, np.ones((100, 200), dtype=bool), (100, 100, 300, 200))])
    rows, columns = np.indices((100, 200))
    inner = (slice(6, -6), slice(6, -6))  # at the rim, black mixes in
    assert np.abs(got[:, :, 0] - (rows + 100) / 2)[inner].max() <= 2
    assert np.abs(got[:, :, 1] - (columns + 100) / 2)[inner].max() <= 2


def test_the_inpainter_can_be_sent_to_another_process_and_takes_no_weights_along(tmp_path):
    model = inpainter(tmp_path / "lama.pt", Convolutions(64, 4))
    list(model.fill(prepared(model)))
    assert len(pickle.dumps(model)) < 2000
    assert pickle.loads(pickle.dumps(model)) == model


def test_unknown_programs_do_not_run(tmp_path):
    path, marker = tmp_path / "lama.pt", tmp_path / "marker"
    sha256 = write_marker(path, marker)
    config = LamaConfig(checkpoint=str(path))
    with pytest.raises(ModelError, match=f"SHA-256 .*--set removals.lama.sha256={sha256}"):
        pin_lama(config, download=False)
    with pytest.raises(ModelError, match=sha256):
        list(LamaInpainter(config=RemovalsConfig(inpainter="lama", lama=config)).fill([]))
    with pytest.raises(ModelError, match=sha256):
        pin_lama(config.model_copy(update={"sha256": "0" * 64}), download=False)
    assert not list(tmp_path.glob("marker*"))
    # The same program with its hash does run: the marker would have told.
    trusted = pin_lama(config.model_copy(update={"sha256": sha256.upper()}), download=False)
    assert not list(tmp_path.glob("marker*"))
    list(LamaInpainter(config=RemovalsConfig(inpainter="lama", lama=trusted)).fill([]))
    assert {file.name for file in tmp_path.glob("marker*")} == {"marker.loaded", "marker.run"}


def test_hostile_files_in_its_place_do_not_run(tmp_path):
    marker = tmp_path / "marker"
    for name, path in write_payloads(tmp_path / "files", marker).items():
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        for config in (LamaConfig(checkpoint=str(path)), LamaConfig(checkpoint=str(path), sha256=sha256)):
            with pytest.raises(ModelError, match=re.escape(str(path))):
                list(LamaInpainter(config=RemovalsConfig(inpainter="lama", lama=config)).fill([]))
            assert not list(tmp_path.glob("marker*")), name


@pytest.mark.parametrize("kept", [0, 3, 200, 0.5, 0.99])
def test_a_truncated_file_is_an_error(tmp_path, kept):
    path = tmp_path / "lama.pt"
    write_lama(path)
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data)) if isinstance(kept, float) else kept])
    with pytest.raises(ModelError, match=str(path)):
        pin_lama(LamaConfig(checkpoint=str(path)), download=False)


def test_a_trusted_file_that_is_damaged_inside_is_an_error(tmp_path):
    path = tmp_path / "lama.pt"
    write_lama(path)
    data = bytearray(path.read_bytes())
    place = data.index(b"/constants.pkl")
    data[place + 20 : place + 120] = bytes(100)
    path.write_bytes(data)
    config = LamaConfig(checkpoint=str(path), sha256=hashlib.sha256(data).hexdigest())
    with pytest.raises(ModelError, match=str(path)):
        list(LamaInpainter(config=RemovalsConfig(inpainter="lama", lama=config)).fill([]))


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (OneArgument(), r"\(n, 3, h, w\) .*\(n, 1, h, w\)"),
        (Halves(), r"\(32, 32, 3\), \(32, 32, 3\).* 64 x 64"),
        (Nothing(), "finite"),
    ],
)
def test_other_programs_are_errors(tmp_path, network, words):
    with pytest.raises(ModelError, match=words):
        list(inpainter(tmp_path / "other.pt", network).fill([]))


def test_a_file_that_has_changed_is_not_taken(tmp_path):
    model = inpainter(tmp_path / "lama.pt")
    write_lama(tmp_path / "lama.pt", Ramp())
    with pytest.raises(ModelError, match=r"lama.pt"):
        list(model.fill([]))


def test_a_missing_file_says_what_fetches_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PAIRWRIGHT_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match=r"big-lama\.pt .*pairwright fetch"):
        pin_lama(LamaConfig(), download=False)
    with pytest.raises(ModelError, match=r"none\.pt"):
        pin_lama(LamaConfig(checkpoint=str(tmp_path / "none.pt")), download=False)


def test_another_file_in_the_cache_is_not_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("PAIRWRIGHT_CACHE", str(tmp_path))
    (tmp_path / "weights").mkdir()
    write_marker(tmp_path / "weights" / PUBLISHED.name, tmp_path / "marker")
    with pytest.raises(ModelError, match=PUBLISHED.sha256):
        pin_lama(LamaConfig(), download=False)
    assert not list(tmp_path.glob("marker*"))


def test_a_pinned_file_is_named_by_its_bytes_and_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sha256 = write_lama(tmp_path / "a.pt")
    (tmp_path / "sub").mkdir()
    shutil.copy("a.pt", "sub/a.pt")
    first, second = (
        pin_lama(LamaConfig(checkpoint=name, sha256=sha256), download=False) for name in ("a.pt", "sub/a.pt")
    )
    assert first.revision == second.revision != ""
    assert Path(first.checkpoint).is_absolute()
    names = {LamaInpainter(config=RemovalsConfig(inpainter="lama", lama=one)).version for one in (first, second)}
    assert names == {f"LaMa {first.revision}"}
