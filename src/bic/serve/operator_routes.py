"""For operators and browsers: health, metrics, the documents and the page's own files."""

from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, Response

from bic.serve.context import WithContext
from bic.serve.docs_page import docs_page, docs_style
from bic.serve.documents import failures
from bic.serve.failures import ApiError
from bic.serve.schemas import HealthAnswer

router = APIRouter(tags=["operate"])
PAGE = Path(__file__).parent / "page"
PAGE_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".webp": "image/webp",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
}
PAGE_FILES = {path.name: path for path in PAGE.glob("*") if path.suffix in PAGE_TYPES}


@router.get("/health", response_model_exclude_none=True)  # it tells nothing about the model
async def health() -> HealthAnswer:
    """The server runs."""
    return HealthAnswer(status="ok")


@router.get("/ready", responses=failures(401, 403, 503))
async def ready(context: WithContext) -> HealthAnswer:
    """The server can predict and learn: it has loaded a version and is not stopping."""
    live = context.serving.live
    if context.stopping.is_set():
        raise ApiError(503, "the server is stopping", "use another one")
    if context.has_failed:
        raise ApiError(503, "the server cannot learn", "start it again", code="internal")
    if live is None:
        raise ApiError(503, "the model knows no classes yet", "teach it", code="no_model")
    return HealthAnswer(status="ready", version=live.version)


@router.get("/metrics", response_class=PlainTextResponse, responses=failures(401, 403))
async def metrics(context: WithContext) -> PlainTextResponse:
    """Counters in the text format of Prometheus."""
    live = context.serving.live
    gauges = (
        ("bic_version", "The version that answers; 0 if none.", live.version if live else 0),
        ("bic_classes", "Classes that can be predicted.", len(live.model.active) if live else 0),
        ("bic_waiting_images", "Images that are being predicted.", context.predictor.num_waiting),
        ("bic_active_jobs", "Lessons that wait or run.", len(context.jobs.active())),
        ("bic_load_failed", "1 if the live version cannot be loaded.", _is_broken(context)),
    )
    text = context.metrics.text(gauges)
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


def _is_broken(context: WithContext) -> int:
    return int(context.serving.problem is not None)


@router.get("/docs", response_class=HTMLResponse, responses=failures(401, 403))
async def docs(request: Request) -> HTMLResponse:
    """This API, as a page."""
    return HTMLResponse(docs_page(request.app.openapi()))


@router.get("/docs/style.css", include_in_schema=False)
async def style() -> Response:
    return Response(docs_style(), media_type="text/css")


@router.get("/", include_in_schema=False)
async def page() -> Response:
    return page_file("index.html")


@router.get("/page/{name}", include_in_schema=False)
async def page_file_named(name: str) -> Response:
    return page_file(name)


def page_file(name: str) -> Response:
    """A file of the page. Only names that were found at the start are known."""
    path = PAGE_FILES.get(name)
    if path is None:
        raise ApiError(404, "there is no such file", "open /")
    headers = {"Cache-Control": "no-cache"}
    return Response(path.read_bytes(), media_type=PAGE_TYPES[path.suffix], headers=headers)
