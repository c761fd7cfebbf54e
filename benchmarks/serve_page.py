"""Draws the page of `bic serve` for the README: a model is taught through it and asked.

    python benchmarks/serve_page.py PHOTOS docs/assets/serve.png

PHOTOS has train/CLASS/*.jpg and test/CLASS/*.jpg. Two classes are taught in a first lesson, a third
and a fourth in two more. Then the page is asked about two test images, one of the newest class and
one of a class that it does not know. The picture shows the answers as they come. What follows `--`
is passed on to `bic serve`, in place of `--recipe=photos --held-out=0.2`.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

LESSONS = (("sunflower", "motorbikes"), ("leopards",), ("pizza",))
ASKED = ("pizza", "yin_yang")
DRAFT = "butterfly"  # filled in and not yet sent
DRAFTED = 12  # images
IMAGES = 30  # per class
OPTIONS = ("--recipe=photos", "--held-out=0.2")
WIDTH = 1180  # pixels of the picture
MARGIN = 24
MINUTES = 15  # that a lesson may take


@contextmanager
def served(model: Path, options: Sequence[str]) -> Iterator[str]:
    """Yields the address that the server prints, which ends in the token."""
    command = [sys.executable, "-m", "bic", "serve", str(model), "--port=0", *options]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    words = (word for line in process.stdout for word in line.split())
    try:
        yield next(word for word in words if word.startswith("http://"))
    finally:
        process.terminate()
        process.wait()


def fill_in(page: Page, position: int, files: Sequence[Path]) -> None:
    """Fill in the form for one class, named as the folder of its images."""
    slot = page.locator(".slot").nth(position)
    slot.get_by_label("Name").fill(files[0].parent.name)
    slot.locator("input[multiple]").set_input_files(files)
    slot.locator(".thumbs li").nth(len(files) - 1).wait_for()


def teach(page: Page, classes: Sequence[str], photos: Path) -> None:
    """A lesson, until its end."""
    for position, name in enumerate(classes):
        fill_in(page, position, sorted((photos / "train" / name).iterdir())[:IMAGES])
    page.locator("#teach-submit").click()
    page.locator(".job progress").wait_for()
    ended = page.locator(".job[data-state]")
    ended.wait_for(timeout=MINUTES * 60_000)
    print(ended.locator("h3").inner_text(), ended.locator(".phase").inner_text(), flush=True)


def ask(page: Page, photos: Path) -> None:
    files = [min((photos / "test" / name).iterdir()) for name in ASKED]
    page.locator("#ask-drop input[multiple]").set_input_files(files)
    page.locator(".bars").nth(len(files) - 1).wait_for()
    for name, answer in zip(ASKED, page.locator(".answer-name").all_inner_texts(), strict=True):
        print(f"{name}: {answer}", flush=True)


def draw(page: Page, picture: Path) -> None:
    """The page from its top to the end of the classes, in 256 colours."""
    page.evaluate("document.activeElement.blur()")
    page.locator("#class-list img").evaluate_all(
        "images => Promise.all(images.map(image => image.decode()))"
    )
    end = page.locator("#class-list").bounding_box()
    assert end is not None
    area = {"x": 0, "y": 0, "width": WIDTH, "height": end["y"] + end["height"] + MARGIN}
    page.screenshot(path=picture, full_page=True, clip=area)
    with Image.open(picture) as image:
        reduced = image.convert("RGB").quantize(256)
    reduced.save(picture, optimize=True)
    print(f"{picture}: {picture.stat().st_size / 1000:.0f} KB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("photos", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("options", nargs="*", default=OPTIONS, help="of bic serve, after --")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 900})
        with served(Path(folder) / "shop", arguments.options) as address:
            page.goto(address)
            for classes in LESSONS:
                teach(page, classes, arguments.photos)
            ask(page, arguments.photos)
            fill_in(page, 0, sorted((arguments.photos / "train" / DRAFT).iterdir())[:DRAFTED])
            draw(page, arguments.picture)
        browser.close()


if __name__ == "__main__":
    main()
