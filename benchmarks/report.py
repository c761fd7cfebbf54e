"""How large a report is and how fast it loads.

    python benchmarks/report.py RUNS... [--rounds N]
    python benchmarks/report.py RUN --picture docs/assets/report.png

RUNS are folders of runs, and each gets a report. Made-up runs of any size will do:

    python tests/support/recorded_runs.py /tmp/ten --steps 5 --step-size 20 --runs 10
    python tests/support/recorded_runs.py /tmp/large --steps 10 --step-size 1000 --images 10

The time is measured in chromium, from the request of the page until its first chart is drawn: in a
new browser, which has to compile plotly's script, and loaded again (median over the rounds). The
machine should do nothing else.

--picture draws a part of the report of one run instead: its bias and its confusions.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from bic.report.page import write_report

WIDTH = 1240  # pixels of the picture
HEIGHT = 6000  # of the window: a chart is drawn when it is visible
MARGIN = 16


def seconds_to_load(browser: Browser, page: Path, rounds: int) -> list[float]:
    """The time of the first visit and of `rounds` more."""
    tab = browser.new_page()
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        tab.goto(page.as_uri())
        tab.wait_for_selector("#curves .main-svg")
        times.append(time.perf_counter() - start)
    tab.close()
    return times


def measure(runs: Path, folder: Path, browser: Browser, rounds: int) -> str:
    """Write the report of some runs into `folder`, and say how long it took and how it loads."""
    start = time.perf_counter()
    page = write_report([runs], folder / "page.html")
    seconds = time.perf_counter() - start
    single = write_report([runs], folder / "single.html", single_file=True)
    first, *later = seconds_to_load(browser, page, rounds)
    size = page.stat().st_size / 1e6
    single_size = single.stat().st_size / 1e6
    return (
        f"{runs}: written in {seconds:.1f} s; "
        f"{size:.1f} MB, as a single file {single_size:.1f} MB; "
        f"loaded in {first:.2f} s, again in {statistics.median(later):.2f} s"
    )


def draw(run: Path, folder: Path, browser: Browser, picture: Path) -> None:
    """Write the part of a run's report from the choice of the step to the confusion matrices."""
    page = write_report([run], folder / "page.html")
    tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    tab.goto(page.as_uri())
    tab.wait_for_selector("#confusion-after .main-svg")
    tab.wait_for_timeout(1000)  # milliseconds, for the other charts
    top = tab.locator("#inspect .toolbar").bounding_box()
    end = tab.locator("#confusion-after").bounding_box()
    assert top is not None
    assert end is not None
    height = end["y"] + end["height"] - top["y"]
    area = {"x": 0, "y": top["y"] - MARGIN, "width": WIDTH, "height": height + 2 * MARGIN}
    tab.screenshot(path=picture, full_page=True, clip=area)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--picture", type=Path, help="the PNG file to draw")
    options = parser.parse_args()
    chromium = shutil.which("chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        for runs in options.runs:
            # A new browser has compiled nothing yet.
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            if options.picture is not None:
                draw(runs, Path(folder), browser, options.picture)
            else:
                print(measure(runs, Path(folder), browser, options.rounds), flush=True)
            browser.close()


if __name__ == "__main__":
    main()
