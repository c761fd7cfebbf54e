"""Recorded runs as tables, plots and HTML pages. Nothing here imports torch."""
