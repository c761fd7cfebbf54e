"""`bic history`, `rollback`, `diff` and `check`: the versions of a model."""

from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from bic.cli.app import Number, app
from bic.cli.teaching import ModelPath
from bic.errors import UserError


@app.command
def history(model: ModelPath, /) -> None:
    """Show what was done to a model, and its settings.

    Example: `bic history shop`
    """
    from bic.model.version_files import present_root
    from bic.report.model_tables import history_table, settings_line
    from bic.store.overview import live_settings
    from bic.store.version_writer import require_versions

    require_versions(model)
    root = present_root(model)
    Console().print(history_table(root.history, model, root.live))
    print(settings_line(live_settings(model)))
    print(f"versions kept: {', '.join(str(kept.number) for kept in root.versions)}")
    if root.candidate is not None:
        print(f"version {root.candidate} is a candidate that was refused: {root.refusal}")


@app.command
def rollback(
    model: ModelPath,
    version: Annotated[
        Number, Parameter(help="By default the version before the live one.")
    ] = None,
    /,
) -> None:
    """Make an earlier version live again. No version is lost.

    For example:

    - `bic rollback shop`
    - `bic rollback shop 3`
    """
    from bic.store.upkeep import roll_back
    from bic.store.version_writer import require_versions, writing

    require_versions(model)
    with writing(model):
        number = roll_back(model, version)
    print(f"version {number} of {model} is live")


@app.command
def diff(
    model: ModelPath,
    first: Annotated[Number, Parameter(help="By default the version before the second.")] = None,
    second: Annotated[Number, Parameter(help="By default the live version.")] = None,
    /,
) -> None:
    """Show what differs between two versions: classes, images, settings, accuracy.

    For example:

    - `bic diff shop`
    - `bic diff shop 2 4`
    """
    from bic.report.model_tables import diff_lines
    from bic.store.overview import diff as compare
    from bic.store.version_writer import require_versions

    require_versions(model)
    for line in diff_lines(compare(model, first, second)):
        print(line)


@app.command
def check(model: ModelPath, /) -> None:
    """Compare every file of a model with its size and checksum.

    Example: `bic check shop`
    """
    from bic.report.model_tables import check_line
    from bic.store.check import check as check_folder
    from bic.store.version_writer import require_versions

    require_versions(model)
    found = check_folder(model)
    if not found.damages:
        print(check_line(found, model))
        return
    for damage in found.damages:
        versions = ", ".join(map(str, damage.versions))
        print(f"{model / damage.file}: {damage.reason}; needed by version {versions}")
    count = len(found.damages)
    problem = (
        f"{model} has {count} damaged file{'s' * (count > 1)}, such as {found.damages[0].file}"
    )
    remedy = "restore them from a copy"
    if found.newest_good is not None:
        remedy += f", or run bic rollback {model} {found.newest_good}, the newest good version"
    raise UserError(problem, remedy)
