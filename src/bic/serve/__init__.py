"""`bic serve`: a model folder over HTTP. Needs the extra `serve` (FastAPI and uvicorn)."""
