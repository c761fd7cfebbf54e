"""Reading what a run has recorded. Imports no torch, so that tables and reports start at once."""

import json
from pathlib import Path
from typing import Any

from bic.errors import UserError

FORMAT = 1  # of a run folder; a higher number was written by a newer version


def read_config(folder: Path) -> dict[str, Any]:
    """The content of a run's `config.json`; refuses what a newer version wrote."""
    recorded = read_json(folder, "config.json", "format", "asked", "plan")
    if recorded["format"] > FORMAT:
        version = recorded.get("version")
        raise UserError(f"{folder} was made by a newer version of bic ({version}); upgrade bic")
    return recorded


def read_result(folder: Path) -> dict[str, Any]:
    """The content of a run's `result.json`."""
    if (folder / "config.json").exists() and not (folder / "result.json").exists():
        raise UserError(f"{folder} has not finished its first step; the same bic run goes on with it")
    result = read_json(folder, "result.json", "steps", "complete")
    if not result["steps"]:
        raise UserError(f"{folder} has a result.json without any step; give a folder that bic run has made, undamaged")
    return result


def read_json(folder: Path, name: str, *keys: str) -> dict[str, Any]:
    """A JSON object that has these keys at least."""
    if not folder.exists():
        raise UserError(f"{folder} does not exist; give a folder that bic run has made")
    try:
        content = json.loads((folder / name).read_bytes())
        return {**content, **{key: content[key] for key in keys}}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{folder} has no readable {name}; give a folder that bic run has made, undamaged") from error
