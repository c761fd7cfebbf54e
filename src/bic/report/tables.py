"""Tables of results for the terminal."""

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from bic.model.pretrained import is_pretrained
from bic.report.looks import look_of
from bic.store.results import Result


def number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def new_table(title: str, first: str, columns: Sequence[str]) -> Table:
    """An empty table: a left-aligned first column, and right-aligned others."""
    table = Table(
        title=Text(title),
        box=box.SIMPLE_HEAD,
        title_justify="left",
        title_style="bold",
        caption_justify="left",
    )
    table.add_column(first, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def comparison(results: Sequence[Result]) -> Table:
    """Accuracy after each step, a row per method."""
    title = "Top-1 accuracy (%) on all classes seen, by number of classes"
    seen = [str(step.seen) for step in results[0].steps]
    table = new_table(title, "method", [*seen, "average", "without first"])
    for result in results:
        cells = [*result.top1, result.average_top1, result.average_incremental_top1]
        mark = " *" if look_of(result.method).is_upper_bound else ""
        style = "bold" if result.method == "bic" else None
        table.add_row(Text(result.method + mark), *map(number, cells), style=style)
    table.caption = "* upper bound: sees old data, which no other method may see"
    return table


def steps(result: Result) -> Table:
    """One run, a row per step, and its averages."""
    state = "" if result.complete else " (unfinished)"
    title = f"{result.method} on {result.dataset}, seed {result.seed}{state}"
    columns = ["classes", "top-1", "raw", "top-5", "forgetting", "old", "newest"]
    table = new_table(title, "step", columns)
    for step in result.steps:
        *old_groups, new_group = step.top1_per_group
        old = [top1 for top1 in old_groups if top1 is not None]
        mean_of_old = sum(old) / len(old) if old else None
        cells = [
            step.top1,
            step.top1_uncorrected,
            step.top5,
            step.forgetting,
            mean_of_old,
            new_group,
        ]
        table.add_row(str(step.step), str(step.seen), *map(number, cells))
    average = number(result.average_top1)
    without_first = number(result.average_incremental_top1)
    table.caption = f"average over all steps {average}, without the first {without_first}"
    if is_pretrained(_backbone(result)):
        table.caption += "; pretrained: not comparable with training from scratch"
    if result.is_unchecked:
        table.caption += "; recorded without a checksum, by an earlier version"
    return table


def _backbone(result: Result) -> str:
    """The name of the backbone. Versions before 0.2 recorded it outside the recipe."""
    recipe = result.config.get("recipe")
    settings = recipe if isinstance(recipe, dict) else result.config
    return str(settings.get("backbone"))


def bias(result: Result) -> Table:
    """The bias towards new classes before and after correction, a row per corrected step."""
    title = "The bias: share of test images put into the newest classes (%)"
    columns = ["α", "β", "uncorrected", "corrected", "true share", "held-out images"]
    table = new_table(title, "step", columns)
    for step in result.steps:
        if step.alpha is None:
            continue
        shares = [step.share_on_new_uncorrected, step.share_on_new, step.true_share_of_new]
        table.add_row(
            str(step.step),
            number(step.alpha, 3),
            number(step.beta, 3),
            *(number(100 * share, 1) for share in shares),
            str(step.num_held_out),
        )
    return table
