"""How large a report is and how fast it loads: ten runs of 100 classes, and one of 10,000.

    python benchmarks/report.py [--rounds N]

Runs are made up. Seconds are from asking for the page until its first chart is drawn, in chromium: in a fresh browser,
which compiles plotly's script, and loaded again (median over the rounds). Wants a quiet machine.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from bic.report.page import write_report

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from recorded_runs import write_run


def write_runs(folder: Path) -> dict[str, Path]:
    for method in ("bic", "distill", "finetune", "icarl", "eeil"):
        for seed in (0, 1):
            place = folder / "ten" / f"{method}-{seed}"
            write_run(place, [20] * 5, method=method, seed=seed, per_class=100, pictures=4)
    write_run(folder / "large", [1000] * 10, per_class=10, pictures=1)
    return {"10 runs of 100 classes": folder / "ten", "1 run of 10,000 classes": folder / "large"}


def seconds_to_load(browser: Browser, page: Path, rounds: int) -> list[float]:
    """The first visit of a new profile, and those after it."""
    tab, taken = browser.new_page(), []
    for _ in range(rounds + 1):
        started = time.perf_counter()
        tab.goto(page.as_uri())
        tab.wait_for_selector("#curves .main-svg")
        taken.append(time.perf_counter() - started)
    tab.close()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for what, runs in write_runs(Path(name)).items():
            started = time.perf_counter()
            page = write_report([runs], Path(name) / f"{runs.name}.html")
            made = time.perf_counter() - started
            alone = write_report([runs], Path(name) / f"{runs.name}-alone.html", single_file=True)
            first, *again = seconds_to_load(browser, page, rounds)
            sizes = f"{page.stat().st_size / 1e6:.1f} MB, as a single file {alone.stat().st_size / 1e6:.1f} MB"
            loads = f"loaded in {first:.2f} s, again in {statistics.median(again):.2f} s"
            print(f"{what}: made in {made:.1f} s; {sizes}; {loads}", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
