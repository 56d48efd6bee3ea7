"""A server that edits images as remover: rows of the stage, from a scripted server over HTTP."""

import base64
import json
import threading
from contextlib import contextmanager
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from pairwright.schemas.config import RemovalsConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.removing import EditorConfig
from pairwright.schemas.rows import Dropped, ElementRow, Failed, RemovalRow
from pairwright.schemas.scene import Mask
from pairwright.tasks.images.decode import decode_rgb, encode_png
from pairwright.tasks.images.masks import encode_mask
from pairwright.tasks.rejected.remove_elements import STAGE, remove_elements
from tests.fixtures.pictures import photograph
from tests.fixtures.rows import row_of

HEIGHT, WIDTH = 120, 160
PIXELS = np.full((HEIGHT, WIDTH, 3), 90, dtype=np.uint8)
PIXELS[50:70, 60:100] = (200, 30, 30)
IMAGE = photograph(PIXELS, name="room.png")
MASK = np.zeros((HEIGHT, WIDTH), dtype=bool)
MASK[50:70, 60:100] = True


def answer_of(pixels):
    data = base64.b64encode(encode_png(pixels)).decode()
    return 200, {"data": [{"b64_json": data}]}


@contextmanager
def editor(reply):
    """Serve edits by a function of the form's fields and the image's pixels."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self._send(200, {"data": [{"id": "editor"}]})

        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            head = f"content-type: {self.headers['content-type']}\r\n\r\n".encode()
            fields = {
                part.get_param("name", header="content-disposition"): part.get_payload(decode=True)
                for part in message_from_bytes(head + body).get_payload()
            }
            pixels = decode_rgb(fields.pop("image"))
            form = {name: value.decode() for name, value in fields.items()}
            asked.append((self.path, form, pixels))
            self._send(*reply(form, pixels))

        def _send(self, status, value):
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def config_of(url, *, attempts=1, **settings):
    server = EditorConfig(endpoint=(url,), max_attempts=attempts)
    return RemovalsConfig(inpainter="edited", editor=server, **settings)


def remove(config):
    mask: Mask = encode_mask(MASK)
    row = row_of(
        ElementRow,
        "element",
        source=IMAGE.key,
        subject=IMAGE.key,
        tag="red sofa",
        mask=mask.model_dump_json(),
        box=(60, 50, 100, 70),
    )
    return list(remove_elements([row], STAGE.pin(config), images={IMAGE.key: IMAGE}))


def test_the_hole_is_filled_by_what_the_server_paints():
    with editor(lambda form, pixels: answer_of(np.full_like(pixels, 10))) as (url, asked):
        (row,) = remove(config_of(url, feather_pixels=0, dilate_pixels=0))
    assert isinstance(row, RemovalRow)
    assert row.inpainter == "edited editor", "the only model that the server has"
    patch = decode_rgb(row.patch)
    x0, y0, x1, y1 = row.window
    inside = MASK[y0:y1, x0:x1]
    assert (patch[inside] == 10).all()
    assert (patch[~inside] == PIXELS[y0:y1, x0:x1][~inside]).all()
    assert row.changed_outside == 0
    ((path, form, pixels),) = asked
    assert path == "/v1/images/edits"
    assert "Remove the red sofa in the middle" in form["prompt"]
    assert form["model"] == "editor"
    assert (pixels == PIXELS[: pixels.shape[0], : pixels.shape[1]]).mean() > 0.9


def test_an_image_of_another_size_is_brought_back():
    def reply(form, pixels):
        return answer_of(np.full((pixels.shape[0] * 2, pixels.shape[1] * 2, 3), 10, np.uint8))

    with editor(reply) as (url, _):
        (row,) = remove(config_of(url))
    assert isinstance(row, RemovalRow)


@pytest.mark.parametrize(
    ("reply", "kind", "reason"),
    [
        (lambda _, pixels: answer_of(pixels[:10]), Dropped, "an edited image of another shape"),
        (
            lambda *_: (200, {"data": [{"b64_json": "aGVsbG8="}]}),
            Dropped,
            "an edited image that cannot be read",
        ),
        (lambda *_: (200, {"data": [{"url": "http://elsewhere/a.png"}]}), Failed, "broken answer"),
        (lambda *_: (500, {"error": "out of memory"}), Failed, "server error"),
        (
            lambda *_: (400, {"error": {"message": "flagged by our safety system"}}),
            Dropped,
            "the server refused the request",
        ),
    ],
)
def test_what_is_no_edit_has_its_reason(reply, kind, reason):
    with editor(reply) as (url, _):
        (row,) = remove(config_of(url))
    assert isinstance(row, kind)
    assert row.reason == reason


def test_a_fault_that_passes_is_tried_again():
    answers = iter([(503, {"error": "loading"}), answer_of(np.full((120, 160, 3), 10, np.uint8))])
    with editor(lambda *_: next(answers)) as (url, asked):
        (row,) = remove(config_of(url, attempts=2))
    assert isinstance(row, RemovalRow)
    assert len(asked) == 2


def test_a_server_that_is_not_there_is_found_before_a_build():
    with editor(lambda *_: (500, {})) as (url, _):
        pass
    with pytest.raises(ModelError, match=r"removals\.editor\.endpoint: http"):
        STAGE.pin(config_of(url))
    with pytest.raises(ModelError, match=r"removals\.editor\.endpoint: name a server"):
        STAGE.pin(RemovalsConfig(inpainter="edited"))


def test_no_process_of_a_gpu_is_taken_for_it():
    assert STAGE.processes(RemovalsConfig(inpainter="edited")) is None
    assert STAGE.prompts(RemovalsConfig(inpainter="edited")) == ("remove_element",)
    assert STAGE.prompts(RemovalsConfig()) == ()
