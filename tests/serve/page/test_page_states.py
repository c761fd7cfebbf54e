"""The page of `bic serve` in a browser: every way to use it, and what can go wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.served_page import ask, drop, fill_slot, findings, paste, wait_until_learned
from support.servers import Served

expect = pytest.importorskip("playwright.sync_api").expect
pytest.importorskip("axe_playwright_python.sync_playwright")

PHONE = {"viewport": {"width": 320, "height": 700}, "is_mobile": True, "has_touch": True}
DARK = {"color_scheme": "dark"}
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
FOCUSED = "document.activeElement.textContent"
NOTHING = {"num_images": 0, "classes": [], "can_learn": False, "message": ""}  # pending
JOB = {
    "id": "1",
    "state": "running",
    "phase": "training",
    "share": 0.42,
    "seconds_left": 12.3,
    "message": "",
    "version": None,
    "classes": ["sky"],
    "num_images": 2,
    "can_retry": False,
    "report": None,
}


def test_images_are_dropped_pasted_and_photographed(shop: Served, visit: Any, images: Any) -> None:
    page = visit(shop).open()
    [dropped, pasted] = images("lime", 2)
    drop(page, "#ask-drop .drop", dropped)
    page.locator(".file", has_text=dropped.name).wait_for()
    drop(page, ".slot .drop", dropped)
    page.locator(".slot .thumbs li").wait_for()
    drop(page, "h1", dropped)  # beside the places for images: the page stays
    paste(page, pasted)
    page.locator(".file", has_text=pasted.name).wait_for()
    page.locator("#ask-drop").get_by_role("button", name="Take a photo").click()
    page.wait_for_selector("#camera-take:enabled")
    assert findings(page) == []
    page.locator("#camera-take").click()
    page.locator(".file", has_text="photo").wait_for()
    expect(page.locator(".bars")).to_have_count(3)


def test_a_file_that_is_no_image_is_named(shop: Served, visit: Any, tmp_path: Path) -> None:
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


def test_the_keyboard_is_enough(shop: Served, visit: Any, images: Any) -> None:
    tab = visit(shop)
    # From now on, not only when it is expected: the key could be faster than the order to wait.
    tab.page.on("filechooser", lambda chooser: None)
    page = tab.open()
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
    expect(page.locator("#announcer")).to_contain_text("lime 9 0.png: ")
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
def test_on_a_phone_and_in_the_dark(shop: Served, visit: Any, images: Any, options: Any) -> None:
    page = visit(shop, **options).open()
    ask(page, *images("lime"))
    page.locator(".correct button").first.click()
    fill_slot(page, 0, "sky", images("sky", 3))
    assert findings(page) == []
    width = page.evaluate("innerWidth")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    captures = page.locator("#ask-drop input[capture=environment]").count()
    assert captures == (1 if options is PHONE else 0)
    if options is DARK:
        assert page.evaluate(BACKGROUND) == "rgb(16, 19, 22)"
        page.locator("#theme").click()
        assert page.evaluate(BACKGROUND) == "rgb(246, 247, 249)"
        assert findings(page) == []


def test_where_reading_needs_the_token_pictures_are_fetched_with_it(
    shop: Served, visit: Any
) -> None:
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


def reply(page: Any, pattern: str, body: Any, status: int = 200) -> list[Any]:
    """Answer calls in place of the server; returns the list of requests, which grows."""
    requests: list[Any] = []

    def answer(route: Any) -> None:
        requests.append(route.request)
        route.fulfill(status=status, content_type="application/json", body=json.dumps(body))

    page.route(pattern, answer)
    return requests


def teach_sky(page: Any, job: dict[str, Any], images: Any) -> None:
    """Start a lesson, to which `job` is the answer."""
    reply(page, "**/v1/learn", {"job": job, "message": "", "pending": NOTHING}, status=202)
    fill_slot(page, 0, "sky", images("sky", 2))
    page.get_by_role("button", name="Teach", exact=True).click()


def test_a_refused_lesson_can_be_used_all_the_same(shop: Served, visit: Any, images: Any) -> None:
    page = visit(shop).open()
    message = "version 2 was refused: it forgot"
    refused = {**JOB, "state": "refused", "message": message, "can_retry": True}
    answered = {"job": refused, "message": "", "pending": NOTHING}
    retries = reply(page, "**/v1/jobs/1/retry", answered, status=202)
    teach_sky(page, refused, images)
    assert wait_until_learned(page) == "Not taken over: sky"
    assert page.locator(".job .phase").inner_text() == "Version 2 was refused: it forgot."
    assert findings(page) == []
    with page.expect_response("**/retry"):
        page.get_by_role("button", name="Use it all the same").click()
    assert [request.post_data_json for request in retries] == [{"force": True}]
    expect(page.locator(".job")).to_have_count(1)


def test_progress_is_shown_and_a_lesson_can_be_cancelled(
    shop: Served, visit: Any, images: Any
) -> None:
    page = visit(shop).open()
    cancelled = {**JOB, "state": "cancelled", "message": "it was cancelled"}
    reply(page, "**/v1/jobs/1", JOB)
    teach_sky(page, JOB, images)
    phase = page.locator(".job .phase")
    expect(phase).to_have_text("Learning: 42\u00a0%, about 15 seconds left")
    assert page.locator("progress").evaluate("bar => bar.value") == 0.42
    expect(page.locator("#announcer")).to_have_text("Learning: 42\u00a0%, about 15 seconds left")
    with page.expect_request(lambda request: request.method == "DELETE") as deletion:
        page.locator(".job").get_by_role("button", name="Cancel").click()
    assert deletion.value.headers["authorization"].startswith("Bearer ")
    reply(page, "**/v1/jobs/1", cancelled)
    assert wait_until_learned(page) == "Cancelled: sky"


def test_many_classes_can_be_searched(shop: Served, visit: Any) -> None:
    tab = visit(shop)
    share = {"value": 0.9, "low": 0.8, "high": 0.95, "correct": 90, "total": 100}
    record = {"seen": 100, "accuracy": share, "thumbnails": []}
    classes = [{"name": f"class {number}", **record} for number in range(60)]
    reply(tab.page, "**/v1/classes", {"version": 1, "classes": classes})
    page = tab.open()
    assert page.locator("h1").inner_text().endswith("class 0, class 1, class 2 and 57 more.")
    cards = page.locator("#class-list > li")
    assert cards.count() == 24
    assert cards.first.locator(".badge").inner_text() == "reliable"
    page.get_by_role("button", name="Show more").click()
    assert cards.count() == 48
    page.get_by_label("Find").fill("class 5")
    assert page.locator("#class-count").inner_text() == "11 of 60 classes"
    assert findings(page) == []


def test_a_server_that_is_gone_is_named(shop: Served, visit: Any, images: Any) -> None:
    tab = visit(shop)
    page = tab.open()
    page.route("**/v1/**", lambda route: route.abort())
    page.locator("#ask-drop input[multiple]").set_input_files(images("lime"))
    gone = "The server does not answer. Check that bic serve is running."
    expect(page.locator("#ask-message")).to_have_text(gone)
    page.reload()
    expect(page.locator("#problem")).to_have_text(gone)
    assert findings(page) == []
    tab.problems.clear()  # the browser logs the requests that failed
