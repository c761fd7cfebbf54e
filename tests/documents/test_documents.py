"""Rules for the text of the documents: length, links, lines, words."""

import re
from pathlib import Path

import pytest
from documents.markdown import ALL, ROOT, name_of

import bic

MAX_README_LINES = 140
MAX_COLUMNS = 120
# Words that are hard to understand, and what to write in their place.
AVOIDED = {
    r"\bmend": "fix",
    r"cores that multiply": "CPUs with native bfloat16",
    r"side by side": "ensemble, or at the same time",
    r"\bprocessors?\b": "CPU",
}
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= MAX_README_LINES


@pytest.mark.parametrize("document", ALL, ids=name_of)
def test_links_lead_somewhere(document: Path) -> None:
    for link in LINK.findall(FENCED.sub("", document.read_text())):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        assert target.exists(), f"{name_of(document)} links to {link}, which does not exist"
        if anchor and not is_generated(target):
            assert anchor in anchors(target), (
                f"{name_of(document)} links to {link}: no such heading"
            )


@pytest.mark.parametrize("document", ALL, ids=name_of)
def test_lines_are_short(document: Path) -> None:
    for number, line in enumerate(document.read_text().splitlines(), start=1):
        is_prose = not line.startswith(("|", "!["))
        assert not is_prose or len(line) <= MAX_COLUMNS, f"{name_of(document)}:{number} is too long"


@pytest.mark.parametrize("document", ALL, ids=name_of)
def test_words_are_plain(document: Path) -> None:
    text = document.read_text()
    for pattern, better in AVOIDED.items():
        found = re.search(pattern, text, re.IGNORECASE)
        assert found is None, f"{name_of(document)} says {found}; write: {better}"


def test_every_public_name_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "python.md").read_text()
    documented = re.findall(r"^::: bic\.(\w+)$", page, re.MULTILINE)
    public = [name for name in bic.__all__ if not name.startswith("__")]
    assert sorted(documented) == sorted(public)


def is_generated(document: Path) -> bool:
    """Whether the site adds headings to the document."""
    return document.suffix != ".md" or "<!-- generated:" in document.read_text()


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as MkDocs makes them.

    >>> sorted(anchor_of(heading) for heading in ("`fast`", "The paper's claims (Table 4)"))
    ['fast', 'the-papers-claims-table-4']
    """
    headings = HEADING.findall(FENCED.sub("", document.read_text()))
    return {anchor_of(heading) for heading in headings}


def anchor_of(heading: str) -> str:
    kept = re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower()
    return re.sub(r"[-\s]+", "-", kept)
