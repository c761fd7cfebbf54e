"""`bic serve`: starts that cannot work."""

import socket
from pathlib import Path

import pytest
from support.command_line import Command, assert_refused

from bic.serve.run import ServeOptions, prepared


def test_without_its_packages(bic: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bic.cli.serving.find_spec", lambda name: None)
    assert_refused(
        bic("serve", "shop"),
        "bic serve needs packages that are not installed; install them with the extra serve: ",
        "pip install 'bic[serve]'",
    )


def test_a_folder_without_versions(bic: Command, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").touch()
    assert_refused(
        bic("serve", "photos"), "photos is not a model folder: it has a.jpg and no versions"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


def test_addresses_that_cannot_be_used(bic: Command, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = bic("serve", "shop", "--port", port)
    assert_refused(refused, f"port {port} (", "choose another --port or --host")
    assert_refused(bic("serve", "shop", "--port", 70000), "a port is from 0 to 65535", "--port")
    assert_refused(bic("serve", "shop", "--host", "no.such.host.invalid"), "change --host")
    assert not (tmp_path / "shop").exists()


def test_a_place_that_cannot_be_written_to(bic: Command, tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    refused = bic("serve", "taken/shop", "--state", "state", "--port", 0)
    assert_refused(refused, "cannot write to taken/shop (Not a directory); make it writable")


def test_a_second_server_is_refused(bic: Command, tmp_path: Path) -> None:
    """Also with a state of its own, and by another path."""
    (tmp_path / "link").symlink_to("shop")
    server = prepared(tmp_path / "shop", ServeOptions(port=0))
    with server.lock:
        for path, state in (("shop", "shop.serve"), ("link", "other")):
            refused = bic("serve", path, "--state", state, "--port", 0)
            assert_refused(refused, "another bic serve has this model open; stop it")
    server.listener.close()
    assert not (tmp_path / "shop").exists()  # nothing was learned


@pytest.mark.timeout(60)
def test_settings_that_do_not_exist(bic: Command) -> None:
    assert_refused(bic("serve", "shop", "--recipe", "quick", "--port", 0), "unknown recipe 'quick'")
