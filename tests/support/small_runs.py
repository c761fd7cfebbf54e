"""Short runs on digits whose models have every kind of answer that learning makes."""

from pathlib import Path
from typing import Any

from bic import RunConfig, run

CONFIGS: dict[str, dict[str, Any]] = {
    "bic": {"method": "bic"},
    "icarl": {"method": "icarl"},
    "fc-retrain": {"method": "fc-retrain"},
    "ensemble": {
        "method": "bic",
        "backbone": "mlp+mlp",
        "method_settings": {"previous_share": 0.5},
    },
}


def small_run(folder: Path, name: str) -> Path:
    """Run a protocol of three steps. Returns the run folder."""
    config = RunConfig(dataset="digits", epochs=1, memory=60, step_sizes=(4, 3, 3), **CONFIGS[name])
    run(config, folder / name, threads=1)
    return folder / name
