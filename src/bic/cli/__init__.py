"""The command line: one file per group of commands. Each parses, calls and prints."""

from bic.cli import data, experiments, models, results, runs
from bic.cli.app import app, main

__all__ = ["app", "data", "experiments", "main", "models", "results", "runs"]
