"""The site builds in strict mode, has everything that the code defines, and needs no network."""

import doctest
import os
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from documents.markdown import ROOT

from bic.cli import app
from bic.learn.methods import METHODS
from bic.learn.recipe import Recipe
from bic.learn.recipes import RECIPES
from bic.settings import known_paths

LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"([^\"]+)|<link[^>]*href=\"([^\"]+)"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


def text_of(page: Path) -> str:
    return re.sub(r"<[^>]+>", "", page.read_text())


def test_every_command_setting_recipe_and_method_is_in_the_reference(site: Path) -> None:
    commands = text_of(site / "reference" / "commands.html")
    for name in ("run", "show", "report", "predict", "paper", "demo", "data get"):
        assert f"bic {name}" in commands
    assert set(app) - {"--help", "-h", "--version"} <= {*commands.split()}

    settings = text_of(site / "reference" / "settings.html")
    for name in [*known_paths(Recipe, "recipe."), *RECIPES, *METHODS]:
        assert name in settings
    for method in METHODS.values():
        for name in method.settings.model_fields:
            assert f"method_settings.{name}" in settings
    assert "Muon's learning rate, relative to the norm of a kernel" in settings  # a comment


def test_no_page_loads_anything_from_the_network(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        for source, link in LOADED.findall(page.read_text()):
            assert "//" not in source + link, f"{page.name} loads {source or link}"


def test_the_search_works_from_the_disk(site: Path, browser: Any) -> None:
    requested: list[str] = []
    page = browser.new_page()
    page.on("request", lambda request: requested.append(request.url))
    page.goto((site / "guide" / "recipes.html").as_uri())
    page.click(".md-search__input")
    page.type(".md-search__input", "herding", delay=20)
    found = page.locator(".md-search-result__link", has_text="Memory").first
    found.wait_for(timeout=30_000)
    page.close()
    assert all(url.startswith(("file:", "data:", "blob:")) for url in requested)


@pytest.mark.parametrize("name", ["reference", "doctests"])
def test_the_examples_in_the_hooks_hold(name: str) -> None:
    path = ROOT / "docs" / "hooks" / f"{name}.py"
    module = types.ModuleType(name)
    exec(compile(path.read_text(), path, "exec"), vars(module))
    failed, tried = doctest.testmod(module)
    assert (failed, tried > 0) == (0, True)
