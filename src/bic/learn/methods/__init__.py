"""All methods by name. To add one, put its file into this folder and its name into FILES."""

from importlib import import_module

from bic.errors import unknown
from bic.learn.methods.method import Method

# In the order in which tables show them.
FILES = (
    "finetune",
    "lwf",
    "icarl",
    "eeil",
    "wa",
    "distill",
    "bic",
    "bic_means",
    "ridge",
    "bic_trained",
    "fc_retrain",
    "joint",
)

ALL: dict[str, Method] = {}
for _file in FILES:
    _method: Method = import_module(f"{__name__}.{_file}").METHOD
    ALL[_method.name] = _method

METHODS = {name: method for name, method in ALL.items() if method.listed}


def find_method(name: str) -> Method:
    """The method of this name. Raises UserError with the closest name if there is none."""
    found = METHODS.get(name) or ALL.get(name)
    if found is None:
        raise unknown("method", name, METHODS)
    return found
