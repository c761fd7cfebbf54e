"""The page of `bic serve` in a browser: ask, teach, correct and roll back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.served_page import (
    HOSTILE,
    SETTINGS,
    answer,
    ask,
    fill_slot,
    findings,
    wait_until_learned,
)
from support.servers import Served, serving

expect = pytest.importorskip("playwright.sync_api").expect
pytest.importorskip("axe_playwright_python.sync_playwright")

FOCUSED = "document.activeElement.textContent"


def test_an_empty_model_is_taught_its_first_two_classes(
    visit: Any, images: Any, tmp_path: Path
) -> None:
    with serving(tmp_path / "shop", settings=SETTINGS) as server:
        tab = visit(server)
        page = tab.open()
        assert page.url == tab.address
        assert page.locator("h1").inner_text() == "This model knows nothing yet."
        assert not page.locator("#ask").is_visible()
        assert findings(page) == []

        page.get_by_role("button", name="Teach 2 classes").click()
        assert page.locator("#teach-message").inner_text() == "Type a name for the class."
        fill_slot(page, 0, "lime", images("lime", 10, seed=0))
        fill_slot(page, 1, "ruby", images("ruby", 10, seed=0))
        assert page.locator(".enough").all_inner_texts() == ["10 images.", "10 images."]
        assert findings(page) == []
        page.get_by_role("button", name="Teach 2 classes").click()

        page.locator(".job progress").wait_for()
        assert findings(page) == []
        assert wait_until_learned(page) == "Learned lime and ruby: version 1"
        page.wait_for_selector("#ask:not([hidden])")
        assert page.locator("h1").inner_text() == "This model knows 2 classes: lime and ruby."
        page.get_by_role("button", name="Try it").click()
        assert page.evaluate(FOCUSED) == "Choose images"
        page.select_option("#reject", "", force=True)
        ask(page, *images("ruby"))
        assert answer(page) == "ruby"
        assert findings(page) == []


def test_answers_have_bars_and_class_names_are_only_text(
    shop: Served, visit: Any, images: Any
) -> None:
    page = visit(shop).open()
    page.get_by_text("Options").click()
    page.get_by_label("Answer “none of these”").select_option("never")
    ask(page, *images("lime"), *images("ruby"))
    assert [answer(page, 0), answer(page, 1)] == ["lime", HOSTILE]
    widths = page.locator("#answers > li:first-child .track i").evaluate_all(
        "bars => bars.map(bar => Number.parseFloat(bar.style.width))"
    )
    assert len(widths) == 2
    assert widths[0] > 90
    assert sum(widths) == pytest.approx(100, abs=0.01)
    assert page.locator("#class-list h3").all_inner_texts() == [HOSTILE, "lime"]
    assert page.locator("#class-list img").count() == 8
    held_out = page.locator("#class-list p").first.inner_text()
    assert held_out == "3 of 3 held-out images right; in use, expect 44 to 100\u00a0%."


def test_an_unusual_image_is_none_of_these(shop: Served, visit: Any, images: Any) -> None:
    page = visit(shop).open()
    page.get_by_text("Options").click()
    page.get_by_label("Answer “none of these”").select_option("when in doubt")
    ask(page, *images("olive"))
    assert "None of these" in page.locator(".answer-name").all_inner_texts()
    assert findings(page) == []
    page.get_by_label("Answer “none of these”").select_option("never")
    expect(page.locator("#answers")).not_to_contain_text("None of these")


def test_corrections_are_taught_and_rolled_back(shop: Served, visit: Any, images: Any) -> None:
    page = visit(shop).open()
    page.select_option("#reject", "", force=True)
    for image in images("sky", 4, seed=5):
        ask(page, image)
        page.get_by_role("button", name="Wrong? Correct it").first.click()
        page.keyboard.type("sky")
        page.keyboard.press("Enter")
        page.wait_for_selector("#answers > li:first-child .noted")
        assert page.evaluate(FOCUSED) == "Noted: sky. It joins the next lesson."
    assert page.locator("#pending-classes li").all_inner_texts() == ["sky\n× 4"]
    assert findings(page) == []
    page.get_by_role("button", name="Teach now").click()
    page.locator(".job progress").wait_for()
    expect(page.locator("#pending")).to_be_hidden()
    assert wait_until_learned(page) == "Learned sky: version 2"
    agrees = "You said: sky. Now the model agrees."
    expect(page.locator("#answers .noted")).to_have_text([agrees] * 4)
    assert "3 classes" in page.locator("h1").inner_text()
    assert page.locator("#events li.live .number").inner_text() == "Version 2"

    page.get_by_role("button", name="Roll back: version 1").click()
    assert findings(page) == []
    page.get_by_role("button", name="Use version 1").click()
    expect(page.locator("h1")).to_contain_text("2 classes")
    expect(page.locator("#history-title")).to_be_focused()
    assert page.locator("#events li.live .number").inner_text() == "Version 1"
    assert answer(page) != "sky"


def test_the_token_is_asked_for_until_it_is_right(shop: Served, visit: Any, images: Any) -> None:
    tab = visit(shop)
    page = tab.open(with_token=False)
    ask(page, *images("lime", seed=6))
    page.locator(".correct button").first.click()
    page.keyboard.type("lime")
    page.keyboard.press("Enter")
    page.wait_for_selector("#token[open]")
    assert findings(page) == []
    page.keyboard.press("Escape")
    refused = page.locator(".correct .message")
    refused.wait_for()
    assert refused.inner_text() == "Nothing was changed: this needs the token."

    page.get_by_role("button", name="Correct", exact=True).click()
    page.get_by_label("Token", exact=True).fill("wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("#token-message:not([hidden])")
    assert "does not know this token" in page.locator("#token-message").inner_text()
    assert page.evaluate("document.activeElement.id") == "token-value"
    page.get_by_label("Token", exact=True).fill(tab.token)
    page.keyboard.press("Enter")
    page.wait_for_selector(".noted")
    assert page.evaluate("document.cookie + JSON.stringify(localStorage)") == "{}"

    page.get_by_role("button", name="Discard").click()
    page.locator("#confirm-yes").click()
    page.wait_for_selector("#pending", state="hidden")
    logged = [problem for problem in tab.problems if "401" in problem]
    assert logged == tab.problems  # the browser logs that the token was refused
    tab.problems.clear()
