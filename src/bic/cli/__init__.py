"""The command line: one file per group of commands. Each parses, calls and prints."""

from bic.cli import (
    classes,
    data,
    experiments,
    export,
    models,
    results,
    runs,
    serving,
    teaching,
    versions,
)
from bic.cli.app import app, main

__all__ = [
    "app",
    "classes",
    "data",
    "experiments",
    "export",
    "main",
    "models",
    "results",
    "runs",
    "serving",
    "teaching",
    "versions",
]
