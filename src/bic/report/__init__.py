"""Recorded runs as tables and pictures. Reads what runs leave on disk; imports no torch."""
