"""The OpenAPI document: bodies that FastAPI cannot derive, and the answers of failures."""

from typing import Any

from bic.serve.schemas import FailureAnswer

BINARY = {"type": "string", "format": "binary"}
IMAGES = {"type": "array", "items": BINARY, "description": "Image files."}
IMAGES_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {"type": "object", "properties": {"images": IMAGES}, "required": ["images"]}
        },
        "application/octet-stream": {"schema": BINARY},
        "image/jpeg": {"schema": BINARY},
        "image/png": {"schema": BINARY},
        "image/webp": {"schema": BINARY},
    },
}
LEARN_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "properties": {
                    "class_name": {
                        "type": "array",
                        "items": {"type": "string", "maxLength": 200},
                        "description": "One name for all images, or one for each, in order.",
                    },
                    "images": IMAGES,
                    "force": {"type": "boolean", "default": False},
                    "max_drop": {"type": "number", "minimum": 0, "maximum": 100, "default": 10},
                },
            }
        }
    },
}
CORRECTION_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "properties": {"class_name": {"type": "string", "maxLength": 200}, "image": BINARY},
                "required": ["class_name", "image"],
            }
        }
    },
}
MEANINGS = {
    400: "The request cannot be understood.",
    401: "The token is missing or wrong.",
    403: "The host name or the origin is not the server's own.",
    404: "There is no such thing.",
    408: "The request did not arrive in time.",
    409: "It cannot be done now: the model is empty, or is being changed.",
    413: "The request has too many bytes or images.",
    415: "The content type is not accepted.",
    422: "A value or an image cannot be used.",
    429: "Too many requests, lessons or images wait.",
    503: "The server has no version to answer with, or is stopping.",
}


def failures(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The failures of a route, for its documentation."""
    return {
        status: {"model": FailureAnswer, "description": MEANINGS[status]} for status in statuses
    }
