"""Reports start quickly: they import no torch."""

import subprocess
import sys

CODE = """
import importlib, pkgutil, sys
import bic.report
names = [module.name for module in pkgutil.iter_modules(bic.report.__path__, "bic.report.")]
assert "bic.report.page" in names
for name in names:
    importlib.import_module(name)
    assert "torch" not in sys.modules, name
"""


def test_no_module_of_the_report_imports_torch() -> None:
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
