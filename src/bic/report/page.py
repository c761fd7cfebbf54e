"""The report: one HTML page of recorded runs that asks nothing of the network."""

import json
import warnings
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup
from plotly.offline import get_plotlyjs, get_plotlyjs_version

from bic.errors import UserError
from bic.report.answer import curves, duration, rows
from bic.report.command import asked_of, command
from bic.report.compare import TRAINING, Protocol, compare, differing, flat, headline, told_apart_by
from bic.report.details import details, pictured
from bic.report.runs import Run, find, load
from bic.report.thumbnails import thumbnails
from bic.version import __version__

SCRIPTS = ("start.js", "charts.js", "bias.js", "table.js", "confusion.js", "classes.js", "page.js")
Found = dict[str, Any]


def write_report(places: Sequence[Path], out: Path | None = None, *, single_file: bool = False) -> Path:
    """Write the page for these runs, folders of runs or result files, and return its path.

    Without `out` it goes into the folder given, or where the command runs if several are. Plotly's script is written
    beside it, or into it with `single_file`. What is damaged is named on the page and the rest is shown; UserError if
    nothing can be, or the page cannot be written.
    """
    if not places:
        raise UserError("no run was given; name a folder that bic run has made, or one that holds such folders")
    runs, damaged = _load_all(find(places))
    if out is None:
        out = (places[0] if len(places) == 1 and places[0].is_dir() else Path()) / "report.html"
    if out.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--out must name a page that ends in .html, got {out}; change it")
    plotly = f"plotly-{get_plotlyjs_version()}.min.js"
    page = render(runs, damaged, None if single_file else plotly)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if not single_file:
            out.with_name(plotly).write_text(get_plotlyjs(), encoding="utf-8")
        out.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {out} ({error.strerror}); choose another --out") from error
    return out


def _load_all(paths: Iterable[Path]) -> tuple[list[Run], list[str]]:
    """The runs, copies left out lest they count as other seeds; and what is wrong with those that cannot be read.

    Of a run folder and copies of its result the folder is taken.
    """
    runs: list[Run] = []
    damaged: list[str] = []
    for path in sorted(paths, key=lambda path: not (path / "config.json").is_file()):  # a bare result has less to show
        try:
            run = load(path)
        except UserError as error:
            damaged.append(str(error))
        else:
            runs += [run] if all(run.result != other.result for other in runs) else []
    for each in damaged if runs else ():
        warnings.warn(each, stacklevel=2)
    if not runs:
        others = f" (and {len(damaged) - 1} more)" if len(damaged) > 1 else ""
        raise UserError(f"no run can be shown{others}: {damaged[0]}")
    return runs, damaged


def render(runs: Sequence[Run], damaged: Sequence[str], plotly: str | None) -> str:
    """The page's text. `plotly` names the script beside it; None puts the script inside."""
    protocols = compare(runs)
    labels = _labels(protocols)
    data = page_data(protocols, labels)  # this reads predictions and pictures, and finds what is damaged in them
    templates = Environment(loader=PackageLoader("bic.report"), undefined=StrictUndefined, autoescape=True)
    ordered = _ordered(protocols)
    return templates.get_template("page.html").render(
        version=__version__,
        answers=[(protocol, headline(protocol), rows(protocol)) for protocol in protocols],
        notices=[*_notices(protocols, labels), *damaged],
        runs=[_described(run, labels[id(run)]) for run in ordered],
        settings=_settings(ordered),
        data=htmlsafe_json_dumps(data, dumps=_dumps),
        style=_text("page.css"),
        scripts=[_text(name) for name in SCRIPTS],
        plotly=plotly,
        plotly_text=Markup(get_plotlyjs()) if plotly is None else "",
    )


def page_data(protocols: Sequence[Protocol], labels: dict[int, str]) -> Found:
    """What the page's script draws from."""
    name_lists: dict[tuple[str, ...], int] = {}
    data_sets: dict[str, list[tuple[Run, Found]]] = {}
    shown = []
    for number, protocol in enumerate(protocols):
        for run in _ordered([protocol]):
            found = details(run)
            names = name_lists.setdefault(tuple(run.result.classes), len(name_lists))
            data_sets.setdefault(run.plan["fingerprint"], []).append((run, found))
            pictures = list(data_sets).index(run.plan["fingerprint"])
            shown.append({"label": labels[id(run)], "protocol": number, "names": names, "pictures": pictures, **found})
    return {
        "protocols": [{"name": protocol.name, **curves(protocol)} for protocol in protocols],
        "runs": shown,
        "names": list(name_lists),
        "pictures": [_pictures(members) for members in data_sets.values()],
    }


def _pictures(members: Sequence[tuple[Run, Found]]) -> dict[str, list[str]]:
    wanted = [run.result.classes[number] for run, found in members for number in pictured(found)]
    return thumbnails([run for run, _ in members], wanted)


def _ordered(protocols: Iterable[Protocol]) -> list[Run]:
    return [run for protocol in protocols for variant in protocol.variants for run in variant.runs]


def _labels(protocols: Sequence[Protocol]) -> dict[int, str]:
    """A name for each run, by its identity: its method, what else tells it apart, and its seed."""
    return {
        id(run): ", ".join(filter(None, [variant.label, f"seed {run.result.seed}", protocol.told_apart]))
        for protocol in protocols for variant in protocol.variants for run in variant.runs
    }  # fmt: skip


def _values(plans: Sequence[dict[str, Any]], names: Iterable[str]) -> str:
    """Settings with all the values that they have in these plans."""
    words = {name: name.removesuffix(".name").removeprefix("recipe.").replace("_", " ") for name in names}
    values = {name: dict.fromkeys(str(plan.get(name))[:40] for plan in plans) for name in words}
    return "; ".join(f"{words[name]}: {' / '.join(values[name])}" for name in words)


def _notices(protocols: Sequence[Protocol], labels: dict[int, str]) -> list[str]:
    """What a reader must know before comparing."""
    said = []
    if len(protocols) > 1:
        plans = [flat(protocol.variants[0].runs[0].plan) for protocol in protocols]
        named = _values(plans, told_apart_by(plans))
        said.append(f"The runs are of {len(protocols)} protocols and are compared within each. They differ in {named}.")
    for protocol in protocols:
        plans = [flat(variant.runs[0].plan) for variant in protocol.variants]
        if unlike := [name for name in differing(plans) if name in TRAINING]:
            of = f" of {protocol.name}" if len(protocols) > 1 else ""
            said.append(f"The runs{of} were not trained alike, beyond their methods: {_values(plans, unlike)}.")
    made_with = [run.result.made_with for run in _ordered(protocols)]
    unlike = [f"{name}: {' / '.join(map(str, sorted(used)))}" for name in ("device", "threads", "processes")
              if len(used := {made[name] for made in made_with if name in made}) > 1]  # fmt: skip
    if unlike:
        said.append(f"Times cannot be compared: the runs were made by different means ({'; '.join(unlike)}).")
    return [*said, *(f"{labels[id(run)]}: {problem}" for run in _ordered(protocols) for problem in run.problems)]


def _described(run: Run, label: str) -> Found:
    """How a run was made."""
    made_with = ", ".join(f"{name} {value}" for name, value in run.result.made_with.items())
    return {
        "label": label,
        "place": run.path,
        "command": command(run.asked or asked_of(run.plan)),
        "exact": run.asked is not None,
        "made_with": made_with,
        "time": duration(sum(run.seconds.values())),
        "images": f"{run.last.num_exemplars:,}",
    }


def _settings(runs: Sequence[Run]) -> Found:
    """Settings that differ, a row per run, and those that all share; method and seed are in the runs' labels."""
    plans = [flat(run.plan) for run in runs]
    names = differing(plans, but=["method", "seed"])
    return {
        "names": names,
        "rows": [[plan.get(name) for name in names] for plan in plans],
        "shared": {name: value for name, value in plans[0].items() if name not in differing(plans)},
    }


def _dumps(value: Any, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _text(name: str) -> Markup:
    return Markup(files("bic.report").joinpath("templates", name).read_text(encoding="utf-8"))
