"""Reading the report's page in tests."""

import json
import re
from pathlib import Path
from typing import Any


def page_data(page: Path | str) -> Any:
    """The data from which the page's script draws. `page` is the file or its text."""
    text = page if isinstance(page, str) else page.read_text(encoding="utf-8")
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert match is not None
    return json.loads(match[1])
