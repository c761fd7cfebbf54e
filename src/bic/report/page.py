"""The report: one HTML page about recorded runs, which works offline."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from plotly.offline import get_plotlyjs, get_plotlyjs_version

from bic.errors import UserError, warn
from bic.files import ELSEWHERE, write_file
from bic.report.command import asked_of, command
from bic.report.comparison_table import curves, duration, rows
from bic.report.comparisons import TRAINING, Comparison, comparisons, headline, protocol_differences
from bic.report.details import classes_to_picture, details
from bic.report.html_page import html_page
from bic.report.plans import Settings, differing, flat, name_in_words
from bic.report.runs import GIVE_RUNS, Run, find, load
from bic.report.thumbnails import thumbnails

# In this order: later scripts use what earlier ones define.
SCRIPTS = ("start.js", "charts.js", "bias.js", "table.js", "confusion.js", "classes.js", "page.js")
Content = dict[str, Any]


def write_report(
    places: Sequence[Path], out: Path | None = None, *, single_file: bool = False
) -> Path:
    """Write the page about these runs, folders of runs or result files, and return its path.

    By default the page is `report.html`: in the folder that was given, or in the current folder if
    there are several. Plotly's script is written next to the page, or into it with `single_file`.
    Damaged runs are named on the page. Raises UserError if no run can be shown, or if the page
    cannot be written.
    """
    if not places:
        raise UserError("no run was given", GIVE_RUNS)
    runs, damaged = _load_all(find(places))
    if out is None:
        folder = places[0] if len(places) == 1 and places[0].is_dir() else Path()
        out = folder / "report.html"
    if out.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"the page must have a name that ends in .html, got {out}", "change {out}")
    plotly = f"plotly-{get_plotlyjs_version()}.min.js"
    page = render(runs, damaged, None if single_file else plotly)
    try:
        if not single_file:
            write_file(out.with_name(plotly), get_plotlyjs().encode())
        write_file(out, page.encode(errors="replace"))
    except UserError as error:
        raise UserError(error.problem, ELSEWHERE) from error
    return out


def _load_all(paths: Iterable[Path]) -> tuple[list[Run], list[str]]:
    """The runs that can be read, and what is wrong with the others.

    A run that is found twice is used once, so that it does not count as two seeds. A run folder is
    preferred to a copy of its result, which has less to show.
    """
    runs: list[Run] = []
    errors: list[UserError] = []
    for path in sorted(paths, key=lambda path: not (path / "config.json").is_file()):
        try:
            run = load(path)
        except UserError as error:
            errors.append(error)
            continue
        if all(run.result != other.result for other in runs):
            runs.append(run)
    if not runs:
        others = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise UserError(f"no run can be shown{others}: {errors[0].problem}", errors[0].remedy)
    damaged = [str(error) for error in errors]
    for message in damaged:
        warn(message)
    return runs, damaged


def render(runs: Sequence[Run], damaged: Sequence[str], plotly: str | None) -> str:
    """The text of the page. `plotly` names a script next to it; None puts the script inside."""
    compared = comparisons(runs)
    labels = _labels(compared)
    ordered = _ordered(compared)
    # This reads predictions and pictures, and adds what is damaged to the problems of a run. So it
    # must come before the notices.
    data = page_data(compared, labels)
    return html_page(
        "page.html",
        styles=["page.css"],
        scripts=SCRIPTS,
        data=data,
        comparisons=[
            (comparison, headline(comparison), rows(comparison)) for comparison in compared
        ],
        notices=[*_notices(compared, labels), *damaged],
        runs=[_how_it_was_made(run, labels[id(run)]) for run in ordered],
        settings=_settings(ordered),
        plotly=plotly,
        plotly_text=Markup(get_plotlyjs()) if plotly is None else "",
    )


def page_data(compared: Sequence[Comparison], labels: dict[int, str]) -> Content:
    """The data from which the page's script draws."""
    name_lists: dict[tuple[str, ...], int] = {}
    data_sets: dict[str, list[tuple[Run, Content]]] = {}
    shown = []
    for number, comparison in enumerate(compared):
        for run in _ordered([comparison]):
            content = details(run)
            fingerprint = run.plan["fingerprint"]
            data_sets.setdefault(fingerprint, []).append((run, content))
            shown.append(
                {
                    "label": labels[id(run)],
                    "protocol": number,
                    "names": name_lists.setdefault(tuple(run.result.classes), len(name_lists)),
                    "pictures": list(data_sets).index(fingerprint),
                    **content,
                }
            )
    return {
        "protocols": [{"name": comparison.name, **curves(comparison)} for comparison in compared],
        "runs": shown,
        "names": list(name_lists),
        "pictures": [_pictures(members) for members in data_sets.values()],
    }


def _pictures(members: Sequence[tuple[Run, Content]]) -> dict[str, list[str]]:
    """Pictures by class name, for runs on the same data."""
    wanted = [
        run.result.classes[number]
        for run, content in members
        for number in classes_to_picture(content)
    ]
    return thumbnails([run for run, _ in members], wanted)


def _ordered(compared: Iterable[Comparison]) -> list[Run]:
    """All runs in the order in which the page shows them."""
    variants = [variant for comparison in compared for variant in comparison.variants]
    return [run for variant in variants for run in variant.runs]


def _labels(compared: Sequence[Comparison]) -> dict[int, str]:
    """A name for each run, by its `id`: method, what else tells it apart, and seed."""
    labels = {}
    for comparison in compared:
        for variant in comparison.variants:
            for run in variant.runs:
                parts = [variant.label, f"seed {run.result.seed}", comparison.difference]
                labels[id(run)] = ", ".join(filter(None, parts))
    return labels


def _values(plans: Sequence[Settings], names: Iterable[str]) -> str:
    """Settings, each with all values that it has in these plans."""
    phrases = []
    for name in names:
        values = dict.fromkeys(str(plan.get(name))[:40] for plan in plans)
        phrases.append(f"{name_in_words(name)}: {' / '.join(values)}")
    return "; ".join(phrases)


def _notices(compared: Sequence[Comparison], labels: dict[int, str]) -> list[str]:
    """What a reader must know before comparing the runs."""
    notices = []
    if len(compared) > 1:
        plans = [flat(comparison.variants[0].runs[0].plan) for comparison in compared]
        differences = _values(plans, protocol_differences(plans))
        notices.append(
            f"There are runs of {len(compared)} protocols. Only runs of the same protocol are "
            f"compared. The protocols differ in {differences}."
        )
    for comparison in compared:
        plans = [flat(variant.runs[0].plan) for variant in comparison.variants]
        unlike = [name for name in differing(plans) if name in TRAINING]
        if unlike:
            which = f" of {comparison.name}" if len(compared) > 1 else ""
            notices.append(
                f"The runs{which} differ in their training, not only in their methods: "
                f"{_values(plans, unlike)}."
            )
    runs = _ordered(compared)
    machines = _different_machines(runs)
    if machines:
        notices.append(
            f"Times cannot be compared: the runs used different resources ({'; '.join(machines)})."
        )
    return notices + [f"{labels[id(run)]}: {problem}" for run in runs for problem in run.problems]


def _different_machines(runs: Sequence[Run]) -> list[str]:
    """Device, threads and processes, if they differ between runs, with all values."""
    differences = []
    for name in ("device", "threads", "processes"):
        used = {run.result.made_with[name] for run in runs if name in run.result.made_with}
        if len(used) > 1:
            differences.append(f"{name}: {' / '.join(map(str, sorted(used)))}")
    return differences


def _how_it_was_made(run: Run, label: str) -> Content:
    made_with = [f"{name} {value}" for name, value in run.result.made_with.items()]
    return {
        "label": label,
        "place": run.path,
        "command": command(run.asked or asked_of(run.plan)),
        "exact": run.asked is not None,
        "made_with": ", ".join(made_with),
        "time": duration(sum(run.seconds.values())),
        "exemplars": f"{run.last.num_exemplars:,}",
    }


def _settings(runs: Sequence[Run]) -> Content:
    """The settings that differ, a row per run, and the others. Labels show method and seed."""
    plans = [flat(run.plan) for run in runs]
    names = differing(plans)
    in_columns = [name for name in names if name not in ("method", "seed")]
    shared = {name: value for plan in plans for name, value in plan.items() if name not in names}
    return {
        "names": in_columns,
        "rows": [[plan.get(name) for name in in_columns] for plan in plans],
        "shared": shared,
    }
