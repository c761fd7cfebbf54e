"""What operators and browsers see: health, metrics, documents, headers, and no other paths."""

import re
import socket
from pathlib import Path

import pytest
from support.servers import Served, as_files, copied, serving, test_pictures

from bic.serve.job_runner import JobRunner


def test_health_and_readiness(server: Served, tmp_path: Path) -> None:
    with server.client(None) as client:
        assert client.get("/health").json()["status"] == "ok"
        assert client.get("/ready").json() == {"status": "ready", "version": 2}
    with serving(tmp_path / "empty") as served, served.client(None) as client:
        assert client.get("/health").status_code == 200
        answer = client.get("/ready")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_model")


def test_a_server_that_cannot_learn_any_more_is_not_ready(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: JobRunner) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(JobRunner, "run", fail)
    with serving(copied(model, tmp_path)) as served, served.client(None) as client:
        answer = client.get("/ready")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "internal")


METRIC = re.compile(r"[a-z_]+(\{[a-z]+=\"[^\"]*\"(,[a-z]+=\"[^\"]*\")*\})? [0-9.e+-]+")


def test_metrics_count_requests_and_images(server: Served) -> None:
    def value(text: str, name: str) -> float:
        (found,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
        return float(found.split()[-1])

    with server.client(None) as client:
        before = client.get("/metrics").text
        client.post("/v1/predict", files=as_files(test_pictures(5)))
        client.get("/strange/\u20ac")
        after = client.get("/metrics")
    assert after.headers["content-type"].startswith("text/plain; version=0.0.4")
    for line in after.text.splitlines():
        assert line.startswith("# ") or METRIC.fullmatch(line), line
    name = "bic_predicted_images_total"
    assert value(after.text, name) - value(before, name) == 5
    assert value(after.text, "bic_version") == 2
    assert value(after.text, "bic_classes") == 3
    assert "strange" not in after.text
    counts = [line for line in after.text.splitlines() if 'route="/v1/predict"' in line]
    (total,) = [line.split()[-1] for line in counts if "_seconds_count" in line]
    (largest,) = [line.split()[-1] for line in counts if 'le="+Inf"' in line]
    assert total == largest


def test_metrics_count_refused_requests_by_route(server: Served) -> None:
    def count(text: str, labels: str) -> int:
        found = [line for line in text.splitlines() if f"bic_requests_total{{{labels}}}" in line]
        return int(found[0].split()[-1]) if found else 0

    refused = 'route="/v1/jobs/{job_id}/retry",method="POST",status="401"'
    unknown = 'route="other",method="",status="404"'
    with server.client(None) as client:
        before = client.get("/metrics").text
        assert client.post("/v1/jobs/strange/retry").status_code == 401
        assert client.get("/strange").status_code == 404
        after = client.get("/metrics").text
    assert count(after, refused) - count(before, refused) == 1
    assert count(after, unknown) - count(before, unknown) == 1
    assert "strange" not in after


def test_the_documents_name_every_call_and_load_nothing(server: Served) -> None:
    with server.client(None) as client:
        document = client.get("/v1/openapi.json").json()
        page = client.get("/docs")
        style = client.get("/docs/style.css")
    assert len(document["paths"]) >= 18
    for path in document["paths"]:
        assert path in page.text
    assert "<script" not in page.text
    assert "style=" not in page.text
    assert not re.findall(r"(?:src|href)=\"(?!/|#)", page.text)
    assert style.headers["content-type"].startswith("text/css")


def test_every_answer_has_security_headers(server: Served) -> None:
    with server.client(None) as client:
        answers = [client.get("/v1/classes"), client.get("/nothing"), client.post("/v1/learn")]
    assert [answer.status_code for answer in answers] == [200, 404, 401]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "server" not in answer.headers


def test_classes_with_thumbnails(server: Served) -> None:
    with server.client(None) as client:
        content = client.get("/v1/classes").json()
        assert content["version"] == 2
        assert [entry["name"] for entry in content["classes"]] == ["a", "b", "c"]
        first = content["classes"][0]
        assert (first["added"], first["seen"]) == (1, 24)
        accuracy = first["accuracy"]
        assert accuracy["value"] == accuracy["correct"] / accuracy["total"]
        assert accuracy["low"] <= accuracy["value"] <= accuracy["high"]
        assert len(first["trend"]) == 2
        assert len(first["thumbnails"]) == 4
        for address in first["thumbnails"]:
            picture = client.get(address)
            assert picture.headers["content-type"] == "image/webp"
            assert picture.content[8:12] == b"WEBP"


def test_history(server: Served) -> None:
    with server.client(None) as client:
        content = client.get("/v1/history").json()
    assert (content["version"], content["versions"], content["candidate"]) == (2, [1, 2], None)
    assert [event["action"] for event in content["events"]] == ["learn", "learn"]


TRICKS = (
    "/page/../tokens.py",
    "/page/..%2ftokens.py",
    "/page/%2e%2e%2ftokens.py",
    "/page/..%5ctokens.py",
    "/page//etc/passwd",
    "/page/%00",
    "/..%2f..%2fetc/passwd",
    "/v1/classes/..%2f..%2flive.json/thumbnails/0",
    "/v1/classes/%2e%2e/thumbnails/0",
    "/v1/classes/0000000000000000/thumbnails/-1",
    "/v1/classes/0000000000000000/thumbnails/0",
    "/v1/classes/0000000000000000/thumbnails/99999999999999999999",
    "/v1/jobs/..%2f..%2ftoken",
    "/v1/jobs/%2e%2e",
    "/v1/jobs/20260101-000000-abcdef%0a",
    "/v1/jobs/20260101-000000-abcdef/events",
)


@pytest.mark.parametrize("path", TRICKS)
def test_path_tricks(server: Served, path: str) -> None:
    """Sent as they are: clients would clean some of them."""
    with socket.create_connection(server.place, timeout=10) as connection:
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode())
        answer = connection.makefile("rb").read()
    assert answer.split()[1] in (b"404", b"422", b"400"), answer[:200]
    assert b"root:" not in answer
    assert b"import" not in answer


NAMES = (".", "..", "../../x", "a/b", "a\\b", "\x00", "a\nb", " a", "x" * 201, "a (retired)", "")


@pytest.mark.parametrize("name", NAMES)
def test_class_names_that_are_tricks(server: Served, name: str) -> None:
    with server.client() as client:
        data = {"class_name": name}
        files = as_files(test_pictures(2))
        answer = client.post("/v1/learn", data=data, files=files)
        assert answer.status_code == 422, answer.text
        assert client.post("/v1/rename", json={"old": "a", "new": name}).status_code == 422
        assert client.post("/v1/retire", json={"classes": [name]}).status_code == 422
        assert client.delete("/v1/pending", params={"class_name": name}).status_code in (200, 422)
    folder = server.folder
    assert {path.name for path in folder.parent.iterdir()} <= {folder.name, f"{folder.name}.serve"}


def test_bodies_that_are_not_json(server: Served) -> None:
    with server.client(headers={"Content-Type": "application/json"}) as client:
        assert client.post("/v1/rollback", content=b"{").status_code == 400
        assert client.post("/v1/rollback", content=b"[" * 50_000).status_code in (400, 422)
        assert client.post("/v1/rollback", content=b'{"version": "x"}').status_code == 422
        assert client.post("/v1/rollback", content=b'{"version": 99}').status_code == 422
        assert client.post("/v1/rollback", content=b'{"other": 1}').status_code == 422
        assert client.post("/v1/rollback", content=b"\xff\xfe").status_code in (400, 422)
        large = b'{"classes": ["' + b"x" * 2**20 + b'"]}'
        assert client.post("/v1/retire", content=large).status_code == 413
