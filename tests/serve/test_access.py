"""Who may call what: the token, the host name and the origin."""

import json
import stat
from pathlib import Path

import httpx
import pytest
from support.servers import Served, as_files, copied, serving, test_pictures

from bic import UserError
from bic.serve.tokens import make_private_folder, open_token

CHANGES = (
    ("POST", "/v1/learn"),
    ("POST", "/v1/corrections"),
    ("POST", "/v1/rollback"),
    ("POST", "/v1/retire"),
    ("POST", "/v1/rename"),
    ("DELETE", "/v1/pending"),
    ("DELETE", "/v1/jobs/20260101-000000-abcdef"),
    ("POST", "/v1/jobs/20260101-000000-abcdef/retry"),
    ("PUT", "/v1/classes"),
    ("POST", "/v1/nothing"),
)
READS = (
    "/v1/classes",
    "/v1/history",
    "/v1/status",
    "/v1/pending",
    "/v1/jobs",
    "/ready",
    "/metrics",
)
OPEN = ("/health", "/docs", "/docs/style.css", "/v1/openapi.json")


@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_changes_need_the_token(server: Served, method: str, path: str) -> None:
    with server.client(None) as client:
        answer = client.request(method, path)
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "needs_token"
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize("wrong", ["x", "ä", "x" * 5000])
def test_wrong_tokens(server: Served, wrong: str) -> None:
    headers = {"Authorization": f"Bearer {wrong}".encode()}
    with server.client(None) as client:
        answer = client.request("DELETE", "/v1/pending", headers=headers)  # type: ignore[arg-type]
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "wrong_token"


def test_misplaced_tokens(server: Served) -> None:
    token = server.token
    with server.client(None) as client:

        def status(**options: object) -> int:
            return client.request("DELETE", "/v1/pending", **options).status_code  # type: ignore[arg-type]

        assert status(params={"token": token, "access_token": token}) == 401
        assert status(headers={"Cookie": f"token={token}; Authorization=Bearer {token}"}) == 401
        assert status(headers={"Authorization": token}) == 401
        assert status(headers={"Authorization": f"Basic {token}"}) == 401
        assert status(headers={"X-Token": token}) == 401
        twice = [("Authorization", f"Bearer {token}"), ("Authorization", "Bearer x")]
        assert status(headers=twice) == 401
        assert status(json={"token": token}) == 401
        assert status(headers={"Authorization": f"bearer {token}"}) == 200


@pytest.mark.parametrize("path", READS)
def test_reads_are_open_on_localhost_only(server: Served, path: str) -> None:
    with server.client(None) as client:
        assert client.get(path).status_code == 200


def test_everything_needs_the_token_under_other_names(model: Path, tmp_path: Path) -> None:
    with serving(copied(model, tmp_path), names=["shop.example.com"]) as served:
        with served.client(None) as client:
            for path in READS:
                assert client.get(path).status_code == 401, path
            assert client.post("/v1/predict", files=as_files(test_pictures(1))).status_code == 401
            for path in OPEN:
                assert client.get(path).status_code == 200, path
            assert client.post("/health").status_code == 401
        with served.client(headers={"Host": "shop.example.com"}) as client:
            for path in READS:
                assert client.get(path).status_code == 200, path
            origin = {"Origin": "https://shop.example.com"}
            assert client.get("/v1/classes", headers=origin).status_code == 200


def test_all_addresses(model: Path, tmp_path: Path) -> None:
    with serving(copied(model, tmp_path), host="0.0.0.0") as served:
        port = served.place[1]
        address = f"http://127.0.0.1:{port}/v1/classes"
        assert httpx.get(address).status_code == 401
        headers = {"Authorization": f"Bearer {served.token}"}
        assert httpx.get(address, headers=headers).status_code == 200
        by_number = {**headers, "Host": "192.0.2.7:80"}
        assert httpx.get(address, headers=by_number).status_code == 200
        by_name = {**headers, "Host": "evil.example"}
        assert httpx.get(address, headers=by_name).status_code == 403


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "192.0.2.7", "", "["],
)
def test_other_host_names_are_refused(server: Served, host: str) -> None:
    """A page of another site whose name points to this machine cannot read anything."""
    with server.client(headers={"Host": host}) as client:
        answer = client.get("/v1/classes")
        assert answer.status_code in (400, 403)
        assert client.get("/health").status_code in (400, 403)


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "http://localhost.evil.example", "http://127.0.0.1:1", "x"],
)
def test_pages_of_other_sites_are_refused(server: Served, origin: str) -> None:
    with server.client(headers={"Origin": origin}) as client:
        answer = client.request("DELETE", "/v1/pending")
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "foreign_origin")
        assert client.post("/v1/predict", files=as_files(test_pictures(1))).status_code == 403
        assert client.options("/v1/learn").status_code == 403


def test_the_own_page_is_allowed(server: Served) -> None:
    host, port = server.place
    with server.client(headers={"Origin": f"http://{host}:{port}"}) as client:
        assert client.request("DELETE", "/v1/pending").status_code == 200
        cross = {"Sec-Fetch-Site": "cross-site"}
        assert client.request("DELETE", "/v1/pending", headers=cross).status_code == 403
        answer = client.get("/v1/classes")
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert "set-cookie" not in answer.headers


def test_the_token_is_stored_hashed_and_private(tmp_path: Path) -> None:
    check, token = open_token(tmp_path)
    assert token is not None
    assert len(token) >= 43  # 256 bits
    path = tmp_path / "token.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert token not in path.read_text()
    assert check.fits(token)
    assert not check.fits(token[:-1])

    again, shown = open_token(tmp_path)
    assert shown is None
    assert again.fits(token)

    renewed, other = open_token(tmp_path, renew=True)
    assert other not in (None, token)
    assert not renewed.fits(token)


def test_a_folder_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    def mode() -> int:
        make_private_folder(tmp_path / "state")
        return stat.S_IMODE((tmp_path / "state").stat().st_mode)

    assert mode() == 0o700  # it is new
    (tmp_path / "state").chmod(0o755)
    assert mode() == 0o755
    for open_to_others in (0o775, 0o1777):
        (tmp_path / "state").chmod(open_to_others)
        with pytest.raises(UserError, match=r"other users can write to .*state; change its mode"):
            mode()


@pytest.mark.parametrize("content", ["", "[]", "{}", json.dumps({"sha256": "short"})])
def test_a_damaged_token_file_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "token.json").write_text(content)
    with pytest.raises(UserError, match=r"token\.json cannot be used"):
        open_token(tmp_path)
