"""/docs: the OpenAPI document as one plain page, without scripts."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATES = Path(__file__).parent / "templates"


def docs_page(document: dict[str, Any]) -> str:
    calls = []
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            calls.append(
                {
                    "method": method.upper(),
                    "path": path,
                    "text": call.get("description", ""),
                    "parameters": _parameters(call),
                    "bodies": _bodies(call),
                    "answers": _answers(call),
                }
            )
    schemas = []
    for name, schema in sorted(document["components"]["schemas"].items()):
        text = schema.get("description", "")
        schemas.append({"name": name, "text": text, "fields": _fields(schema)})
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined
    )
    template = environment.get_template("docs.html")
    return template.render(info=document["info"], calls=calls, schemas=schemas)


@cache
def docs_style() -> str:
    return (TEMPLATES / "docs.css").read_text(encoding="utf-8")


def _parameters(call: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Name, type with place, and meaning of each parameter."""
    found = []
    for parameter in call.get("parameters", []):
        kind = f"{_kind(parameter['schema'])} ({parameter['in']})"
        found.append((parameter["name"], kind, parameter.get("description", "")))
    return found


def _bodies(call: dict[str, Any]) -> list[tuple[str, str]]:
    """The content types of the body, and the fields or the type of each."""
    content = call.get("requestBody", {}).get("content", {})
    return [(name, _kind(described.get("schema", {}))) for name, described in content.items()]


def _answers(call: dict[str, Any]) -> list[tuple[str, str, str]]:
    found = []
    for status, answer in sorted(call.get("responses", {}).items()):
        content = answer.get("content", {})
        schemas = [described.get("schema") for described in content.values()]
        schema = schemas[0] if schemas else None
        kind = _kind(schema) if schema else ", ".join(content)
        found.append((status, answer.get("description", ""), kind))
    return found


def _fields(schema: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, _kind(field)) for name, field in schema.get("properties", {}).items()]


def _kind(schema: dict[str, Any]) -> str:
    """The type of a value in words.

    >>> _kind({"anyOf": [{"type": "integer"}, {"type": "null"}]})
    'integer or null'
    >>> _kind({"type": "array", "items": {"$ref": "#/components/schemas/JobInfo"}})
    'list of JobInfo'
    """
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " or ".join(_kind(option) for option in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}"
    if schema.get("format") == "binary":
        return "file"
    if schema.get("type") == "object" and "properties" in schema:
        return ", ".join(f"{name}: {kind}" for name, kind in _fields(schema))
    return str(schema.get("type", "value"))
