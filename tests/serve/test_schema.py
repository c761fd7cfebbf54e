"""Requests made up from the OpenAPI document: none gets a 5xx, and answers are as documented."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from support.servers import Served, serving

CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]


@pytest.fixture(scope="module")
def changing(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = Path(shutil.copytree(model, tmp_path_factory.mktemp("schema") / "shop"))
    with serving(folder) as served:
        yield served


SETTINGS = settings(
    max_examples=8,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def test_requests_made_up_from_the_document(changing: Served) -> None:
    api = schemathesis.openapi.from_url(f"{changing.address}v1/openapi.json")
    headers = {"Authorization": f"Bearer {changing.token}"}
    num_calls = 0
    for found in api.get_all_operations():
        operation = found.ok()

        @SETTINGS
        @given(case=operation.as_strategy())
        def check(case: schemathesis.Case) -> None:
            nonlocal num_calls
            num_calls += 1
            case.call_and_validate(
                base_url=changing.address, headers=headers, checks=CHECKS, timeout=30
            )

        check()
    assert num_calls >= 100
