"""`bic serve`: a model over HTTP, with a page on which anyone can teach it."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bic.cli.app import Number, Text, Whole, app, flag
from bic.cli.models import Device, Trust
from bic.errors import UserError

NEEDED = ("fastapi", "uvicorn", "python_multipart")
NEW = "Of a model that does not exist yet: as for bic learn."


@app.command
def serve(
    model: Annotated[Path, Parameter(help="The folder of the model; it may not exist yet.")],
    /,
    *,
    port: Annotated[Whole, Parameter(help="The port; 0 for any that is free.")] = 8000,
    host: Annotated[str, Parameter(help="The address to listen at.")] = "127.0.0.1",
    name: Annotated[
        tuple[str, ...],
        flag("Another name under which it is reached, as behind a proxy; can be repeated."),
    ] = (),
    new_token: Annotated[bool, flag("Make another token; the old one is no longer valid.")] = False,
    state: Annotated[
        Path | None, flag("Folder for the hash of the token and for jobs; by default MODEL.serve.")
    ] = None,
    recipe: Annotated[Text, flag(NEW)] = None,
    method: Annotated[Text, flag(NEW)] = None,
    memory: Annotated[Text, flag(NEW)] = None,
    image_size: Annotated[Number, flag(NEW)] = None,
    held_out: Annotated[float | None, flag(NEW)] = None,
    epochs: Annotated[Number, flag(NEW)] = None,
    backbone: Annotated[Text, flag(NEW)] = None,
    seed: Annotated[Number, flag(NEW)] = None,
    device: Device = None,
    trust: Trust = False,
) -> None:
    """Serve a model over HTTP, with a page for predicting and teaching.

    Open the address that is printed. Calls that change the model need the token, which is printed
    at the first start. On addresses other than localhost, and with `--name`, all calls need it.
    `/docs` describes the API.

    For example:

    - `bic serve shop`
    - `bic serve shop --port 8080 --name shop.example.com`
    """
    if any(find_spec(package) is None for package in NEEDED):
        raise UserError(
            "bic serve needs packages that are not installed",
            "install them with the extra serve: pip install 'bic[serve]'",
        )
    from bic.compute.devices import chosen_device
    from bic.serve.run import ServeOptions
    from bic.serve.run import serve as run_server

    if not 0 <= port <= 65535:
        raise UserError(f"a port is from 0 to 65535, got {port}", "change {port}")
    settings = {
        "recipe": recipe,
        "method": method,
        "memory": memory,
        "image_size": image_size,
        "held_out": held_out,
        "epochs": epochs,
        "backbone": backbone,
        "seed": seed,
    }
    options = ServeOptions(
        host=host,
        port=port,
        names=name,
        state=state,
        new_token=new_token,
        device=chosen_device(device),
        trust=trust,
        settings=settings,
    )
    run_server(model, options, lambda line: print(line, flush=True))
