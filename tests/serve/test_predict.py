"""POST /v1/predict: the same answers as `bic predict`, and what is wrong with an image."""

import io
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.servers import Served, as_files, copied, serving, taught, test_pictures, wait_until

from bic import Model, open_model
from bic.model.predict import predictions
from bic.serve.limits import Limits


def test_many_images_get_the_answers_of_bic_predict(server: Served, model: Path) -> None:
    images = test_pictures(20)
    expected = list(predictions(Model.load(model), images, top=3, reject=0.05))
    with server.client(None) as client:
        answer = client.post("/v1/predict?top=3&reject=0.05", files=as_files(images))
    assert answer.status_code == 200
    content = answer.json()
    assert content["version"] == 2
    for number, (found, wanted) in enumerate(zip(content["predictions"], expected, strict=True)):
        assert found["name"] == f"{number}.png"
        assert found["answer"] == wanted.answer
        assert found["is_none"] is wanted.rejected
        assert [entry["name"] for entry in found["classes"]] == list(wanted.classes)
        values = [entry["probability"] for entry in found["classes"]]
        assert values == pytest.approx(wanted.probabilities, abs=2e-6)


def test_an_image_as_the_body(server: Served) -> None:
    (image,) = test_pictures(1)
    with server.client(None) as client:
        raw = client.post(
            "/v1/predict?name=tea.png", content=image, headers={"Content-Type": "image/png"}
        ).json()
        as_form = client.post("/v1/predict", files=as_files([image])).json()
    (found,) = raw["predictions"]
    assert found["name"] == "tea.png"
    assert found["classes"] == as_form["predictions"][0]["classes"]


def test_top_is_cut_to_the_number_of_classes(server: Served) -> None:
    with server.client(None) as client:
        answer = client.post("/v1/predict?top=900", files=as_files(test_pictures(1))).json()
    assert len(answer["predictions"][0]["classes"]) == 3


def test_a_parameter_that_does_not_exist_is_refused(server: Served) -> None:
    with server.client() as client:
        misspelt = client.post("/v1/predict?topp=3", files=as_files(test_pictures(1)))
        needless = client.get("/v1/pending?class=tea")
    assert misspelt.status_code == needless.status_code == 422
    assert misspelt.json()["error"] == {
        "code": "bad_value",
        "problem": "unknown parameter 'topp'",
        "remedy": "did you mean 'top'? Known: top, reject, name",
        "file": None,
    }
    assert needless.json()["error"]["remedy"] == "leave it out: there are none"


def bomb() -> bytes:
    """A PNG that claims 50,000 × 50,000 pixels."""
    packed = io.BytesIO()
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(packed, "PNG")
    size = (50_000).to_bytes(4, "big")
    content = bytearray(packed.getvalue())
    content[16:24] = size + size
    content[29:33] = zlib.crc32(bytes(content[12:29])).to_bytes(4, "big")
    return bytes(content)


def array_file() -> bytes:
    packed = io.BytesIO()
    np.save(packed, np.zeros((1, 8, 8), np.uint8))
    return packed.getvalue()


NESTED = (
    b"--inner\r\nContent-Disposition: form-data; name=images; filename=a.png\r\n\r\nx\r\n--inner--"
)
BROKEN = {
    "text": b"hello",
    "empty": b"",
    "cut off": test_pictures(1)[0][:60],
    "bomb": bomb(),
    "array": array_file(),
    "form in a form": NESTED,
    "svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_image_is_named(server: Served, kind: str) -> None:
    good = test_pictures(1)[0]
    files = [("images", ("good.png", good)), ("images", ("../../bad\x1b.png", BROKEN[kind]))]
    with server.client(None) as client:
        answer = client.post("/v1/predict", files=files)
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert error["code"] == "unreadable_image"
    assert error["file"].endswith("bad\\x1b.png") or error["file"].endswith("bad%1B.png")
    assert error["file"] in error["problem"]


@pytest.mark.parametrize(
    ("query", "name"),
    [("top=0", "top"), ("top=x", "top"), ("reject=nan", "reject"), ("reject=1", "reject")],
)
def test_values_out_of_range(server: Served, query: str, name: str) -> None:
    with server.client(None) as client:
        answer = client.post(f"/v1/predict?{query}", files=as_files(test_pictures(1)))
    assert answer.status_code == 422
    assert answer.json()["error"]["problem"].startswith(f"{name}: ")


def test_bodies_that_are_not_images(server: Served) -> None:
    with server.client(None) as client:

        def status(content: bytes, kind: str) -> int:
            headers = {"Content-Type": kind}
            return client.post("/v1/predict", content=content, headers=headers).status_code

        assert status(b"{}", "application/json") == 415
        assert status(b"", "image/png") == 400
        assert status(b"x", "multipart/form-data") == 400  # without a boundary
        assert status(b"x", "multipart/form-data; boundary=b") == 400
        assert client.post("/v1/predict", files=[("other", b"x")]).status_code == 422
        text = client.post("/v1/predict", data={"images": "text"}, files=[("images", b"x")])
        assert text.status_code == 422


@pytest.mark.parametrize("charset", ["undefined", "punycode"])
def test_a_form_in_a_strange_encoding(server: Served, charset: str) -> None:
    disposition = b'Content-Disposition: form-data; name="class_name"'
    content = b"--b\r\n" + disposition + b"\r\n\r\n\xff\r\n--b--\r\n"
    headers = {"Content-Type": f"multipart/form-data; boundary=b; charset={charset}"}
    with server.client() as client:
        answer = client.post("/v1/learn", content=content, headers=headers)
    error = answer.json()["error"]
    assert (answer.status_code, error["remedy"]) == (400, "send UTF-8")
    assert error["problem"] == "the form has text in an unknown encoding"


def test_too_many_and_too_large(model: Path, tmp_path: Path) -> None:
    limits = Limits(files=3, upload_bytes=20_000)
    with serving(copied(model, tmp_path), limits=limits) as served, served.client() as client:
        many = client.post("/v1/predict", files=as_files(test_pictures(4)))
        assert (many.status_code, many.json()["error"]["code"]) == (413, "too_large")
        many = client.post("/v1/predict", files=as_files(test_pictures(9)))
        assert (many.status_code, many.json()["error"]["code"]) == (413, "too_large")
        headers = {"Content-Type": "image/png"}
        large = client.post("/v1/predict", content=b"x" * 20_001, headers=headers)
        assert (large.status_code, large.json()["error"]["code"]) == (413, "too_large")
        pieces = (b"x" * 1000 for _ in range(5000))  # no length is announced
        large = client.post("/v1/predict", content=pieces, headers=headers)
        assert (large.status_code, large.json()["error"]["code"]) == (413, "too_large")
        assert client.post("/v1/predict", files=as_files(test_pictures(3))).status_code == 200


def test_requests_that_arrive_together_share_forward_passes(server: Served) -> None:
    assert server.server is not None
    metrics = server.server.context.metrics
    images = test_pictures(10)
    before = (metrics.num_images, metrics.num_batches)
    statuses = []

    def ask(number: int) -> None:
        with server.client(None) as client:
            for image in images:
                answer = client.post("/v1/predict", files=as_files([image]))
                statuses.append(answer.status_code)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 160
    assert metrics.num_images - before[0] == 160
    assert metrics.num_batches - before[1] < 120


def test_a_version_from_another_process_is_picked_up(tmp_path: Path) -> None:
    folder = taught(tmp_path / "shop", "ab", "c")
    (image,) = test_pictures(1)
    with serving(folder) as served, served.client(None) as client:

        def version() -> int:
            answer = client.post("/v1/predict", files=as_files([image]))
            number: int = answer.json()["version"]
            return number

        assert version() == 2
        open_model(folder).rollback()
        wait_until(lambda: version() == 1)
        open_model(folder).rollback(2)
        wait_until(lambda: version() == 2)


def test_a_damaged_model_does_not_replace_the_one_that_answers(tmp_path: Path) -> None:
    folder = taught(tmp_path / "shop", "ab")
    (image,) = test_pictures(1)
    with serving(folder) as served, served.client(None) as client:
        (folder / "live.json").write_text("{}")
        wait_until(lambda: client.get("/v1/status").json()["problem"])
        assert "live.json is damaged" in client.get("/v1/status").json()["problem"]
        answer = client.post("/v1/predict", files=as_files([image]))
        assert (answer.status_code, answer.json()["version"]) == (200, 1)
