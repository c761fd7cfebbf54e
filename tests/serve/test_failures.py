"""Errors as the API says them."""

from bic import UserError
from bic.errors import LostError
from bic.serve.failures import api_error


def test_a_problem_and_its_remedy_are_kept_apart() -> None:
    found = api_error(UserError("class 'a; b' has only one image", "use {memory=60}; or\nadd one"))
    assert found.status_code == 422
    assert found.problem == "class 'a; b' has only one image"
    assert found.remedy == "use memory=60; or add one"
    assert api_error(LostError("the disk is full", "make room")).status_code == 500
