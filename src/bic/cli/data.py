"""`bic data`: fetch data sets."""

from pathlib import Path

from cyclopts import App

from bic.cli.app import Quiet, app, progress_for

data_app = App(name="data", help="Fetch data sets.")
app.command(data_app)


@data_app.command
def get(name: str, *, out: Path | None = None, quiet: Quiet = False) -> None:
    """Download a data set, or continue an interrupted download.

    Example: `bic data get cifar100`
    """
    from bic.data.download import data_home
    from bic.data.download import get as download

    print(download(name, out or data_home(), progress_for(quiet)))
