"""A browser's tab on the page of a server, and images of colours to teach."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from support.servers import Served

# Learns a class of coloured images in a tenth of a second.
SETTINGS = {"recipe": "demo", "image_size": 16, "epochs": 12, "memory": 60, "held_out": 0.3}
HOSTILE = "<img src=x onerror=alert(1)>"  # the name of a class
COLOURS = {
    "ruby": (200, 40, 40),
    "lime": (40, 200, 40),
    "sky": (40, 60, 220),
    "olive": (120, 120, 40),
}


def write_colour(folder: Path, name: str, count: int, *, seed: int = 0) -> list[Path]:
    """Noisy images of the colour `name`."""
    folder.mkdir(parents=True, exist_ok=True)
    draws = np.random.default_rng([seed, *COLOURS[name]])
    paths = []
    for number in range(count):
        noise = draws.normal(0, 40, (24, 24, 3))
        pixels = np.clip(np.array(COLOURS[name]) + noise, 0, 255).astype(np.uint8)
        paths.append(folder / f"{name} {seed} {number}.png")
        Image.fromarray(pixels).save(paths[-1])
    return paths


class Tab:
    """A tab, and what must not happen in it: errors, dialogs and requests to other hosts."""

    def __init__(self, browser: Any, server: Served, **options: Any) -> None:
        self.address = server.address
        self.token = server.token
        self.problems: list[str] = []
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.page.on("console", self._log)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", self._dismiss)
        self.page.on("request", self._log_request)

    def _log(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def _log_request(self, request: Any) -> None:
        if not request.url.startswith((self.address, "data:", "blob:")):
            self.problems.append(request.url)

    def _dismiss(self, dialog: Any) -> None:
        self.problems.append(dialog.message)
        dialog.dismiss()

    def open(self, *, with_token: bool = True) -> Any:
        """Load the page, and wait until it shows the model."""
        self.page.goto(f"{self.address}#token={self.token}" if with_token else self.address)
        self.page.wait_for_selector("#desk:not([hidden])")
        return self.page


def ask(page: Any, *images: Path) -> None:
    """Give images to the page, and wait for the answers."""
    page.locator("#ask-drop input[multiple]").set_input_files(images)
    name = images[0].name
    page.locator("#answers > li", has_text=name).first.locator(".bars, .sure").first.wait_for()
    page.locator(".sure", has_text="Looking").first.wait_for(state="detached")


def answer(page: Any, index: int = 0) -> str:
    return str(page.locator(".answer-name").nth(index).inner_text())


def fill_slot(page: Any, index: int, name: str, images: Sequence[Path]) -> None:
    """Type the name of a class to teach, and give its images."""
    slot = page.locator(".slot").nth(index)
    slot.get_by_label("Name").fill(name)
    slot.locator("input[multiple]").set_input_files(images)
    slot.locator(".thumbs li").nth(len(images) - 1).wait_for()


def wait_until_learned(page: Any) -> str:
    """The title of the lesson when it has ended."""
    ended = page.locator(".job[data-state]")
    ended.wait_for(timeout=150_000)
    return str(ended.locator("h3").inner_text())


def carried(page: Any, image: Path) -> Any:
    """A file as a drag or the clipboard carries it."""
    return page.evaluate_handle(
        """([name, bytes]) => {
            const transfer = new DataTransfer();
            const content = new Uint8Array(bytes);
            transfer.items.add(new File([content], name, { type: "image/png" }));
            return transfer;
        }""",
        [image.name, list(image.read_bytes())],
    )


def drop(page: Any, selector: str, image: Path) -> None:
    """Drop a file on an element, as a file manager would."""
    event = {"dataTransfer": carried(page, image)}
    for name in ("dragenter", "dragover", "drop"):
        page.dispatch_event(selector, name, event)


def paste(page: Any, image: Path) -> None:
    page.evaluate(
        "data => dispatchEvent(new ClipboardEvent('paste', { clipboardData: data }))",
        carried(page, image),
    )


def findings(page: Any) -> list[str]:
    """What axe finds on the page that is serious or critical."""
    from axe_playwright_python.sync_playwright import Axe

    violations = Axe().run(page).response["violations"]
    return [
        f"{violation['id']}: {violation['nodes'][0]['target']}"
        for violation in violations
        if violation["impact"] in ("serious", "critical")
    ]
