"""The page of `bic serve` in a browser: every way to use it, and what can go wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.served_page import CHROMIUM, ask, drop, fill_slot, findings, wait_until_learned

expect = pytest.importorskip("playwright.sync_api").expect
pytest.importorskip("axe_playwright_python.sync_playwright")
pytest.importorskip("fastapi")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not installed (Debian: apt install chromium)"
)

PHONE = {"viewport": {"width": 390, "height": 800}, "is_mobile": True, "has_touch": True}
DARK = {"color_scheme": "dark"}
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
FOCUSED = "document.activeElement.textContent"


def test_images_are_dropped_pasted_and_photographed(shop: str, visit: Any, images: Any) -> None:
    page = visit(shop).open()
    [image] = images("lime")
    drop(page, "#ask-drop .drop", image)
    page.locator(".file", has_text="dropped.png").wait_for()
    drop(page, ".slot .drop", image)
    page.locator(".slot .thumbs li").wait_for()
    drop(page, "h1", image)  # beside the places for images: the page stays
    page.locator("#ask-drop").get_by_role("button", name="Take a photo").click()
    page.wait_for_selector("#camera-take:enabled")
    assert findings(page) == []
    page.locator("#camera-take").click()
    page.locator(".file", has_text="photo").wait_for()
    expect(page.locator(".bars")).to_have_count(2)


def test_a_file_that_is_no_image_is_named(shop: str, visit: Any, tmp_path: Path) -> None:
    tab = visit(shop)
    page = tab.open()
    text = tmp_path / "notes.txt"
    text.write_text("no image")
    page.locator("#ask-drop input[multiple]").set_input_files(text)
    page.wait_for_selector("#ask-message:not([hidden])")
    assert page.locator("#ask-message").inner_text() == "1 file is not an image."
    broken = tmp_path / "broken.png"
    broken.write_text("no image")
    page.locator("#ask-drop input[multiple]").set_input_files(broken)
    page.locator("#ask-message", has_text="broken.png").wait_for()
    tab.problems.clear()  # the browser logs the server's 422


def test_the_keyboard_is_enough(shop: str, visit: Any, images: Any) -> None:
    page = visit(shop).open()
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUSED) == "Skip to the content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUSED) == "Choose images"
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Enter")
    chooser.value.set_files(images("lime"))
    page.wait_for_selector(".bars")
    page.keyboard.press("Tab")  # to the camera
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUSED) in ("Wrong? Correct it", "Say what it is")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.labels[0].textContent") == "This is a"
    page.keyboard.press("Escape")
    assert page.evaluate(FOCUSED) in ("Wrong? Correct it", "Say what it is")
    said = page.locator("#announcer").inner_text()
    assert "lime 9 0.png: " in said
    fill_slot(page, 0, "x", images("sky", 2))
    page.locator(".thumbs button").first.press("Enter")
    label = "document.activeElement.getAttribute('aria-label')"
    assert page.evaluate(label) == "Remove sky 9 1.png"
    page.keyboard.press("Enter")
    assert page.evaluate(FOCUSED) == "Choose images"
    page.locator("#class-list button").first.press("Enter")
    page.wait_for_selector("#confirm[open]")
    page.keyboard.press("Escape")
    assert page.evaluate(FOCUSED) == "Retire"


@pytest.mark.parametrize("options", [PHONE, DARK], ids=["phone", "dark"])
def test_on_a_phone_and_in_the_dark(shop: str, visit: Any, images: Any, options: Any) -> None:
    page = visit(shop, **options).open()
    ask(page, *images("lime"))
    page.locator(".correct button").first.click()
    fill_slot(page, 0, "sky", images("sky", 3))
    assert findings(page) == []
    width = page.evaluate("innerWidth")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if options is DARK:
        assert page.evaluate(BACKGROUND) == "rgb(16, 19, 22)"
        page.locator("#theme").click()
        assert page.evaluate(BACKGROUND) == "rgb(246, 247, 249)"
        assert findings(page) == []


def test_where_reading_needs_the_token_pictures_are_fetched_with_it(shop: str, visit: Any) -> None:
    tab = visit(shop)

    def protected(route: Any) -> None:
        answered = route.fetch()
        route.fulfill(response=answered, json={**answered.json(), "needs_token_to_read": True})

    sent: list[str | None] = []
    tab.page.route("**/v1/status", protected)
    tab.page.on(
        "request",
        lambda request: (
            "thumbnails" in request.url and sent.append(request.headers.get("authorization"))
        ),
    )
    page = tab.open()
    expect(page.locator("#class-list img[src^='blob:']")).to_have_count(8)
    page.locator("#class-list img").evaluate_all(
        "images => Promise.all(images.map(image => image.decode()))"
    )
    assert sent == [f"Bearer {tab.token}"] * 8


def test_a_refused_lesson_can_be_used_all_the_same(shop: str, visit: Any, images: Any) -> None:
    tab = visit(shop)
    page = tab.open()
    job = {
        "id": "refused", "state": "refused", "phase": "finished", "share": 1, "seconds_left": None,
        "message": "version 2 was refused: it forgot", "version": None, "classes": ["sky"],
        "num_images": 2, "can_retry": True, "report": None,
    }  # fmt: skip
    pending = {"num_images": 0, "classes": [], "can_learn": False, "message": ""}
    asked: list[Any] = []

    def reply(route: Any) -> None:
        asked.append(route.request.post_data_json if "retry" in route.request.url else None)
        body = {"job": job, "message": "", "pending": pending}
        route.fulfill(status=202, content_type="application/json", body=json.dumps(body))

    page.route("**/v1/learn", reply)
    page.route("**/v1/jobs/refused/retry", reply)
    fill_slot(page, 0, "sky", images("sky", 2))
    page.get_by_role("button", name="Teach", exact=True).click()
    assert wait_until_learned(page) == "Not taken over: sky"
    assert page.locator(".job .phase").inner_text() == "Version 2 was refused: it forgot."
    assert findings(page) == []
    page.get_by_role("button", name="Use it all the same").click()
    expect(page.locator(".job")).to_have_count(1)
    assert asked == [None, {"force": True}]
