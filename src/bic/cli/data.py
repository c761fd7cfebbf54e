"""`bic data`: fetch data sets."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from bic.cli.app import Quiet, app, flag, progress_for

data_app = App(name="data", help="Fetch data sets.")
app.command(data_app)


@data_app.command
def get(
    name: Annotated[str, Parameter(help="The data set: cifar100.")],
    *,
    out: Annotated[
        Path | None, flag("Folder for data; by default $BIC_DATA or ~/.cache/bic.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Download a data set, or continue an interrupted download.

    Example: `bic data get cifar100`
    """
    from bic.data.download import data_home
    from bic.data.download import get as download

    print(download(name, out or data_home(), progress_for(quiet)))
