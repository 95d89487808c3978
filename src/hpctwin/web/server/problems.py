"""Errors of the REST interface as problem details (RFC 9457)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from hpctwin.errors import (
    HpctwinError,
    JournalError,
    LateError,
    TooLargeError,
    UnknownNameError,
)
from hpctwin.web.views.views import example

__all__ = ["OPEN_PATHS", "PROBLEM", "Problem", "document", "faults", "handle_errors", "problem"]

PROBLEM = "application/problem+json"


class InvalidField(BaseModel):
    """A part of a request that is not valid."""

    field: str = Field(description="Name of the field or parameter, with its path.")
    detail: str = Field(description="Why its value is not valid.")


class Problem(BaseModel):
    """An error as of RFC 9457."""

    model_config = example(
        type="about:blank", title="Not Found", status=404, detail="no decision 999"
    )  # fmt: skip

    type: str = Field("about:blank", description="Always about:blank: the status says it.")
    title: str = Field(description="Name of the HTTP status.")
    status: int = Field(description="HTTP status.")
    detail: str = Field(description="The error and what to do, in one sentence.")
    errors: list[InvalidField] = Field([], description="Invalid parts of the request.")


OPEN_PATHS = ("/healthz", "/readyz", "/favicon.ico")
"""Paths without a token."""

_MEANINGS = {
    400: "The body is not readable.",
    401: "A token is required.",
    403: "The role of the token does not allow it.",
    404: "The object does not exist.",
    408: "The body did not arrive in time.",
    409: "The request conflicts with the current state.",
    413: "The body is too long.",
    421: "The host name of the request is not allowed.",
    422: "A parameter or the body is not valid, or the request would take too long.",
    429: "Too many requests; see Retry-After.",
    503: "The server cannot answer now.",
}


def faults(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the error answers of an operation for its OpenAPI document."""
    content = {"content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    return {status: {"description": _MEANINGS[status], **content} for status in statuses}


def problem(status: int, detail: str, errors: Iterable[InvalidField] = ()) -> bytes:
    """Return the body of an error answer."""
    title = HTTPStatus(status).phrase
    body = Problem(title=title, status=status, detail=detail, errors=list(errors))
    return body.model_dump_json(exclude=None if errors else {"errors"}).encode()


def handle_errors(app: FastAPI) -> None:
    """Make an application answer all errors as problem details."""

    def answer(
        status: int,
        detail: str,
        errors: Iterable[InvalidField] = (),
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        return Response(problem(status, detail, errors), status, headers, PROBLEM)

    @app.exception_handler(HpctwinError)
    def wrong(_: Request, error: HpctwinError) -> Response:
        status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 409)
        return answer(status, str(error))

    @app.exception_handler(HTTPException)
    def refused(_: Request, error: HTTPException) -> Response:
        return answer(error.status_code, error.detail, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    def invalid(_: Request, error: RequestValidationError) -> Response:
        # Values are not repeated: they may be NaN, which JSON does not have.
        found = [
            InvalidField(field=".".join(map(str, one["loc"][1:])) or "body", detail=one["msg"])
            for one in error.errors()
        ]
        return answer(422, "; ".join(f"{one.field}: {one.detail}" for one in found), found)

    @app.exception_handler(Exception)
    def failed(_: Request, error: Exception) -> Response:
        return answer(500, "internal error; see the log of the server")


_STATUS: dict[type[HpctwinError], int] = {
    UnknownNameError: 404,
    JournalError: 503,
    TooLargeError: 422,
    LateError: 503,
}


def document(app: FastAPI) -> None:
    """Add to an application's OpenAPI document what FastAPI does not know: tokens and problems."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = made()
            schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
            components = found.setdefault("components", {})
            components.setdefault("schemas", {}).update(schema.pop("$defs"), Problem=schema)
            for name in ("HTTPValidationError", "ValidationError"):
                components["schemas"].pop(name, None)
            components["securitySchemes"] = {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of the server.",
                }
            }
            found["security"] = [{"token": []}]
            for path in found["paths"].keys() & set(OPEN_PATHS):
                for operation in found["paths"][path].values():
                    operation["security"] = []
                    operation["responses"].pop("401")
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]
