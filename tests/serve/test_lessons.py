"""Teaching over HTTP: lessons, corrections, jobs that fail, and versions."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
from support import lesson_commands
from support.servers import (
    as_files,
    ended,
    lesson,
    pictures,
    png,
    serving,
    test_pictures,
    wait_until,
)
from support.taught import images_of

from bic import files
from bic.serve import lesson_process
from bic.serve.limits import Limits


def version_of(client: httpx.Client) -> int:
    answer = client.post("/v1/predict", files=as_files(test_pictures(1)))
    number: int = answer.json()["version"]
    return number


def test_from_an_empty_model_to_three_versions(tmp_path: Path) -> None:
    """The way of a new user: two classes, a third, a correction, and back."""
    folder = tmp_path / "shop"
    with serving(folder) as served, served.client() as client:
        empty = client.post("/v1/predict", files=as_files(test_pictures(1)))
        assert (empty.status_code, empty.json()["error"]["code"]) == (409, "no_model")
        assert client.get("/v1/classes").json() == {"version": None, "classes": []}
        assert client.post("/v1/rollback", json={}).status_code == 409

        one_name = {"data": {"class_name": "a"}, "files": lesson("a")["files"]}
        first = client.post("/v1/learn", **one_name)
        assert first.status_code == 202
        assert first.json()["job"] is None
        assert "needs two classes" in first.json()["message"]
        assert first.json()["pending"]["classes"] == [
            {"name": "a", "num_images": 12, "is_ready": False}
        ]

        second = client.post("/v1/learn", **lesson("b"))
        assert second.status_code == 202
        job = ended(client, second.json()["job"]["id"])
        assert (job["state"], job["version"], job["share"]) == ("done", 1, 1.0)
        assert job["message"].startswith("version 1 is live: 2 new classes (a, b), 24 images")
        assert version_of(client) == 1
        assert client.get("/v1/pending").json()["num_images"] == 0
        assert not (folder / "waiting").exists()

        correction = {"class_name": "a"}
        image = [("image", ("x.png", pictures("a", 1, start=20)[0][1]))]
        corrected = client.post("/v1/corrections", data=correction, files=image)
        assert corrected.status_code == 201
        assert corrected.json()["pending"]["can_learn"] is True

        third = client.post("/v1/learn", **lesson("c")).json()["job"]
        events = _events(client, third["id"])
        assert [event["state"] for event in events][-1] == "done"
        assert {"running", "done"} <= {event["state"] for event in events}
        shares = [event["share"] for event in events]
        assert shares == sorted(shares)
        report = events[-1]["report"]
        assert (report["new_classes"], report["known_classes"]) == (["c"], ["a"])
        assert report["num_images"] == 13
        assert version_of(client) == 2

        names = [entry["name"] for entry in client.get("/v1/classes").json()["classes"]]
        assert names == ["a", "b", "c"]
        assert client.post("/v1/rollback", json={"version": None}).json() == {"version": 1}
        assert version_of(client) == 1
        actions = [event["action"] for event in client.get("/v1/history").json()["events"]]
        assert actions == ["learn", "learn", "roll back"]


def _events(client: httpx.Client, job_id: str) -> list[dict[str, Any]]:
    events = []
    with client.stream("GET", f"/v1/jobs/{job_id}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for line in stream.iter_lines():
            if line.startswith("data: "):
                events.append(json.loads(line.removeprefix("data: ")))
    return events


@pytest.fixture
def shop(tmp_path: Path, model: Path) -> Path:
    """A copy of the model with the classes a, b and c."""
    return Path(shutil.copytree(model, tmp_path / "shop"))


def use(monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """Let lessons go wrong."""
    monkeypatch.setattr(lesson_process, "COMMAND", lesson_commands.command(change))


def training(client: httpx.Client, job_id: str) -> None:
    """Wait until the process of a job trains: it holds the lock of the model then."""
    wait_until(lambda: client.get(f"/v1/jobs/{job_id}").json()["phase"] == "training")


def test_cancelled_jobs_leave_the_version_and_can_be_tried_again(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, lesson_commands.ENDLESS)
    with serving(shop, limits=Limits(queued_jobs=2)) as served, served.client() as client:
        image = [("image", ("x.png", pictures("a", 1, start=20)[0][1]))]
        client.post("/v1/corrections", data={"class_name": "a"}, files=image)
        running = client.post("/v1/learn", **lesson("d")).json()["job"]["id"]
        training(client, running)
        queued = client.post("/v1/learn", **lesson("e")).json()["job"]["id"]
        full = client.post("/v1/learn", **lesson("f"))
        assert (full.status_code, full.json()["error"]["code"]) == (429, "too_many")
        assert full.headers["Retry-After"]
        busy = client.post("/v1/rollback", json={"version": 1})
        assert (busy.status_code, busy.json()["error"]["code"]) == (409, "busy")
        assert client.get("/v1/pending").json()["num_images"] == 0  # the lesson has taken it

        assert client.delete(f"/v1/jobs/{queued}").json()["state"] == "cancelled"
        stopped = client.delete(f"/v1/jobs/{running}").json()
        assert (stopped["state"], stopped["can_retry"]) == ("cancelled", True)
        assert client.delete(f"/v1/jobs/{running}").status_code == 409
        assert client.get("/v1/pending").json()["num_images"] == 1  # and given it back
        assert version_of(client) == 2

        monkeypatch.undo()
        again = client.post(f"/v1/jobs/{running}/retry").json()["job"]["id"]
        job = ended(client, again)
        assert (job["state"], job["version"], job["num_images"]) == ("done", 3, 13)
        assert client.post(f"/v1/jobs/{running}/retry").status_code == 409
        assert client.get("/v1/pending").json()["num_images"] == 0


def test_a_killed_learning_process_leaves_the_version(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, lesson_commands.ENDLESS)
    with serving(shop) as served, served.client() as client:
        job_id = client.post("/v1/learn", **lesson("d")).json()["job"]["id"]
        training(client, job_id)
        assert served.server is not None
        process = served.server.context.jobs.process
        assert process is not None
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        job = ended(client, job_id)
        assert job["state"] == "failed"
        assert job["message"].startswith("the learning process was killed (SIGKILL)")
        assert version_of(client) == 2
        assert client.post("/v1/rollback", json={"version": 1}).json() == {"version": 1}


def test_a_lesson_waits_while_another_process_changes_the_model(shop: Path) -> None:
    with serving(shop) as served, served.client() as client:
        with files.locked(shop):
            job_id = client.post("/v1/learn", **lesson("d")).json()["job"]["id"]
            address = f"/v1/jobs/{job_id}"
            wait_until(lambda: client.get(address).json()["state"] == "running")
            wait_until(lambda: client.get(address).json()["phase"] == "waiting")
            assert version_of(client) == 2
            second = client.post("/v1/learn", **lesson("e")).json()["job"]["id"]
        assert ended(client, job_id)["version"] == 3
        assert ended(client, second)["version"] == 4


def test_a_lesson_that_waits_can_be_cancelled(shop: Path) -> None:
    with serving(shop) as served, served.client() as client, files.locked(shop):
        job_id = client.post("/v1/learn", **lesson("d")).json()["job"]["id"]
        wait_until(lambda: client.get(f"/v1/jobs/{job_id}").json()["state"] == "running")
        wait_until(lambda: client.get(f"/v1/jobs/{job_id}").json()["phase"] == "waiting")
        assert client.delete(f"/v1/jobs/{job_id}").json()["state"] == "cancelled"
        assert version_of(client) == 2


def test_a_failing_learning_process_reports_why(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, lesson_commands.FAILING)
    with serving(shop) as served, served.client() as client:
        job = ended(client, client.post("/v1/learn", **lesson("d")).json()["job"]["id"])
        assert (job["state"], job["message"]) == ("failed", "RuntimeError: no luck")
        assert version_of(client) == 2


def test_a_refused_version_can_be_forced(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, lesson_commands.SPOILT)
    with serving(shop) as served, served.client() as client:
        job_id = client.post("/v1/learn", **lesson("d")).json()["job"]["id"]
        job = ended(client, job_id)
        assert (job["state"], job["can_retry"]) == ("refused", True)
        assert job["message"].startswith("version 3 was refused: the accuracy on old classes fell")
        assert version_of(client) == 2
        history = client.get("/v1/history").json()
        assert (history["candidate"], history["versions"]) == (3, [1, 2])
        use(monkeypatch, lesson_commands.FAILING)  # nothing is trained again
        forced = client.post(f"/v1/jobs/{job_id}/retry", json={"force": True}).json()["job"]["id"]
        job = ended(client, forced)
        assert (job["state"], job["version"]) == ("done", 3)
        assert version_of(client) == 3


def test_retired_classes_lose_what_waits(shop: Path) -> None:
    with serving(shop) as served, served.client() as client:
        files = as_files([image for _, image in pictures("a", 3, start=20)])
        for name in ("c", "thin"):
            image = [files.pop()]
            answer = client.post("/v1/corrections", data={"class_name": name}, files=image)
            assert answer.status_code == 201
        waiting = client.get("/v1/pending").json()
        assert [(entry["name"], entry["is_ready"]) for entry in waiting["classes"]] == [
            ("c", True),
            ("thin", False),
        ]
        assert waiting["message"] == "thin needs 2 different images"
        addresses = client.get("/v1/classes").json()["classes"][2]["thumbnails"]
        assert client.get(addresses[0]).status_code == 200

        retired = client.post("/v1/retire", json={"classes": ["c"]}).json()
        assert retired["version"] == 2
        assert retired["num_images"] > 0
        assert [entry["name"] for entry in client.get("/v1/pending").json()["classes"]] == ["thin"]
        assert client.get(addresses[0]).status_code == 404
        assert client.post("/v1/retire", json={"classes": ["c"]}).status_code == 422
        answer = client.post("/v1/predict?top=9", files=as_files(test_pictures(1))).json()
        names = {entry["name"] for entry in answer["predictions"][0]["classes"]}
        assert names == {"a", "b"}

        assert client.post("/v1/rename", json={"old": "a", "new": "apple"}).status_code == 200
        assert client.get("/v1/classes").json()["classes"][0]["name"] == "apple"
        assert client.delete("/v1/pending", params={"class_name": "thin"}).json()["classes"] == []


def test_lessons_that_cannot_be_used(shop: Path) -> None:
    limits = Limits(classes=2, pending_images=3)
    with serving(shop, limits=limits) as served, served.client() as client:

        def refused(data: dict[str, Any], count: int = 1) -> tuple[int, str]:
            files = as_files(test_pictures(count))
            answer = client.post("/v1/learn", data=data, files=files)
            return answer.status_code, answer.json()["error"]["problem"]

        assert refused({})[0] == 422
        assert refused({"class_name": ["x", "y"]}, 3) == (
            422,
            "there are 3 images and 2 class names",
        )
        assert refused({"class_name": ["x", "y", "z"]}, 3)[0] == 413
        assert refused({"class_name": "A"})[0] == 422  # a is known
        assert refused({"class_name": "x", "force": "perhaps"})[0] == 422
        assert refused({"class_name": "x", "max_drop": "nan"})[0] == 422
        assert refused({"class_name": "x", "max_drop": ["1", "2"]})[0] == 422
        assert refused({"class_name": "x", "other": "1"})[0] == 422
        assert refused({"class_name": "x"}, 4)[0] == 429
        broken = [("images", ("broken.png", b"x"))]
        answer = client.post("/v1/learn", data={"class_name": "x"}, files=broken)
        assert (answer.status_code, answer.json()["error"]["file"]) == (422, "broken.png")
        assert client.post("/v1/learn", json={}).status_code == 415
        only_name = client.post("/v1/corrections", data={"class_name": "a"}, files=[("x", b"")])
        assert only_name.status_code == 422
        assert client.get("/v1/jobs").json() == {"jobs": []}
        assert client.get("/v1/pending").json()["num_images"] == 0


def test_a_class_needs_two_different_images(shop: Path) -> None:
    with serving(shop) as served, served.client() as client:
        image = png(images_of("d")[0][0])
        answer = client.post(
            "/v1/learn", data={"class_name": "d"}, files=as_files([image, image])
        ).json()
        assert answer["job"] is None
        assert answer["message"] == (
            "kept for the next lesson: 1 image of 1 class (d); d needs 2 different images"
        )
