"""Errors of the API: a status, a code, and a problem with a remedy, as JSON."""

from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from bic.errors import BicError, InUseError, LostError
from bic.text import printable

CODES = {
    400: "bad_request",
    401: "needs_token",
    403: "foreign_origin",
    404: "not_found",
    405: "bad_method",
    408: "too_slow",
    409: "conflict",
    413: "too_large",
    415: "wrong_type",
    422: "bad_value",
    429: "too_many",
    500: "internal",
    503: "stopping",
}


class ApiError(HTTPException):
    """An answer of 400 to 599. `file` names the image that it is about."""

    def __init__(
        self,
        status: int,
        problem: str,
        remedy: str,
        *,
        code: str | None = None,
        file: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(status, problem, headers)
        self.problem = printable(problem)
        self.remedy = remedy
        self.code = code or CODES[status]
        self.file = file

    def response(self) -> Response:
        return failure_response(
            self.status_code, self.code, self.problem, self.remedy, self.file, self.headers
        )


def failure_response(
    status: int, code: str, problem: str, remedy: str, file: str | None = None, headers: Any = None
) -> Response:
    error = {"code": code, "problem": problem, "remedy": remedy, "file": file}
    return JSONResponse({"error": error}, status, headers)


def api_error(error: BicError) -> ApiError:
    """The answer for an error of the library. Remedies name settings as the API does."""
    if isinstance(error, InUseError):
        remedy = "wait until the lesson is done, or cancel it"
        return ApiError(409, "the model is being changed right now", remedy, code="busy")
    status = 500 if isinstance(error, LostError) else 422
    return ApiError(status, error.problem, printable(error.phrased_remedy(_in_api)))


def _in_api(name: str, value: str | None) -> str:
    return name if value is None else f"{name}={value}"


def too_many(problem: str) -> ApiError:
    return ApiError(429, problem, "try again a little later", headers={"Retry-After": "2"})


def no_model() -> ApiError:
    return ApiError(
        409, "the model knows no classes yet", "teach it two classes first", code="no_model"
    )
