"""`bic classes`, `retire` and `rename`: the classes of a model."""

from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from bic.cli.app import app
from bic.cli.teaching import ModelPath


@app.command
def classes(model: ModelPath, /) -> None:
    """List the classes of a model: since which version, images, accuracy and its trend.

    Example: `bic classes shop`
    """
    from bic.model.version_files import present_root
    from bic.report.model_tables import classes_table
    from bic.store.overview import class_summaries
    from bic.store.version_writer import require_versions

    require_versions(model)
    Console().print(classes_table(class_summaries(model), model, present_root(model).live))


@app.command
def retire(
    model: ModelPath, names: Annotated[list[str], Parameter(help="Names of classes.")], /
) -> None:
    """Stop predicting classes and delete their images, in every kept version and for good.

    A rollback does not bring them back. Copies of the folder are not changed.

    Example: `bic retire shop cup`
    """
    from bic.store.learn_report import counted
    from bic.store.upkeep import retire as retire_classes
    from bic.store.version_writer import require_versions, writing

    require_versions(model)
    with writing(model):
        num_images = retire_classes(model, names)
    print(f"retired {', '.join(names)}: {counted(num_images, 'kept image')} deleted")


@app.command
def rename(
    model: ModelPath,
    old: Annotated[str, Parameter(help="The present name of a class.")],
    new: Annotated[str, Parameter(help="Its new name.")],
    /,
) -> None:
    """Give a class another name, in every kept version.

    Example: `bic rename shop cup mug`
    """
    from bic.store.upkeep import rename as rename_class
    from bic.store.version_writer import require_versions, writing

    require_versions(model)
    with writing(model):
        rename_class(model, old, new)
    print(f"{old} is now called {new}")
