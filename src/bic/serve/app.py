"""The application: routes, errors as JSON, and the guard around everything."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from bic.errors import BicError, unknown
from bic.serve import learn_routes, model_routes, operator_routes, predict_routes
from bic.serve.context import Context
from bic.serve.documents import failures
from bic.serve.failures import CODES, ApiError, api_error, failure_response
from bic.serve.guard import Guard
from bic.version import __version__

DESCRIPTION = (
    "A model that answers and keeps learning. Calls that change something need the token in the "
    "header Authorization: Bearer TOKEN; on addresses other than localhost all calls need it. "
    "Every failure has the form of FailureAnswer."
)
# Newer versions of FastAPI report to other servers if the environment says so. This must not.
SILENT: Any = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}


def create_app(context: Context) -> ASGIApp:
    """The ASGI application of a server."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await context.open()
        yield
        await context.close()

    app = FastAPI(
        title="bic serve",
        version=__version__,
        description=DESCRIPTION,
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        telemetry=SILENT,
    )
    app.state.context = context
    routers = [predict_routes.router, learn_routes.router, model_routes.router]
    for router in routers:
        checks = [Depends(_refuse_unknown)]
        app.include_router(router, dependencies=checks, responses=failures(422))
    app.include_router(operator_routes.router)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(BicError, _on_bic_error)
    app.add_exception_handler(Exception, _on_bug)
    routes = [route for router in (*routers, operator_routes.router) for route in router.routes]
    return Guard(app, routes, context.access, context.limits, context.metrics)


async def _refuse_unknown(request: Request) -> None:
    """Raise UserError for a query parameter that the route does not have."""
    known = [parameter.alias for parameter in request.scope["route"].dependant.query_params]
    for name in request.query_params:
        if name not in known:
            raise unknown("parameter", name, known)


async def _on_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error, ApiError):
        return error.response()
    status = error.status_code
    remedy = "see /docs"
    return failure_response(
        status, CODES.get(status, "bad_request"), error.detail, remedy, headers=error.headers
    )


async def _on_invalid(_: Request, error: Exception) -> Response:
    """A parameter or a body that does not fit its type."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"][1:]) or "the body"
    is_malformed = first["type"] == "json_invalid"
    return ApiError(
        400 if is_malformed else 422, f"{place}: {first['msg']}", "see /docs for what is allowed"
    ).response()


async def _on_bic_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, BicError)
    return api_error(error).response()


async def _on_bug(_: Request, error: Exception) -> Response:
    return failure_response(500, "internal", "the server has a defect", "see its log")
