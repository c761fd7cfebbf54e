"""How large a report is and how fast it loads.

    python benchmarks/report.py RUNS... [--rounds N]

RUNS are folders of runs, and each gets a report. Made-up runs of any size will do:

    python tests/support/recorded_runs.py /tmp/ten --steps 5 --step-size 20 --runs 10
    python tests/support/recorded_runs.py /tmp/large --steps 10 --step-size 1000 --images 10

The time is measured in chromium, from the request of the page until its first chart is drawn: in a
new browser, which has to compile plotly's script, and loaded again (median over the rounds). The
machine should do nothing else.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from bic.report.page import write_report


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    chromium = shutil.which("chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        for runs in options.runs:
            # A new browser has compiled nothing yet.
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            print(measure(runs, Path(folder), browser, options.rounds), flush=True)
            browser.close()


if __name__ == "__main__":
    main()
