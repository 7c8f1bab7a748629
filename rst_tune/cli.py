"""The command line: it parses and delegates. Exit codes: 0 done, 1 the work failed, 2 wrong input, 130 interrupted."""

import json
import logging
import os
import shlex
import signal
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

try:
    import typer
    from rich.console import Console
except ImportError as error:
    raise SystemExit(f"rst-tune needs the package {error.name}: pip install 'rst_tune[tune]'") from error

import rst_tune
from rst_tune import api, files
from rst_tune.errors import InputError
from rst_tune.redaction import redact_text

app = typer.Typer(
    name="rst-tune",
    help="Find the randomized sharpness-aware training schedule that is worth its compute.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
out, err = Console(), Console(stderr=True)
# Click's exception, which prints itself: its module differs between versions of Typer.
UsageError: type[Exception] = typer.BadParameter.__mro__[2]

ExperimentName = Annotated[
    str, typer.Argument(help="A shipped experiment (`rst-tune list experiments`) or a YAML file")
]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a field: a.b=c")]
Directory = Annotated[
    Path | None, typer.Argument(help="Output directory of a search; default: the latest", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout and nothing else")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only")]
Cost = Annotated[str | None, typer.Option(help="compute or seconds; default: that of the search", show_default=False)]
Earlier = Annotated[
    list[Path] | None,
    typer.Option("--from", metavar="DIR", help="An earlier search that informs this one; may be given several times"),
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free one")]
Address = Annotated[str | None, typer.Option(help="A running Ray cluster; default: RAY_ADDRESS, else a local one")]


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))


def _show(kind: str, value: Any, as_json: bool) -> None:
    """Print plain data as a table, or as JSON."""
    if as_json:
        _print_json(value)
    else:
        out.print(api.table(kind, value))


def _check_output(path: Path | None) -> None:
    """Refuse a file that cannot be written before the work whose result it gets."""
    if path is not None:
        files.check_replaceable(path)


def _echo(text: str) -> None:
    """Print one line as it is, for people and for scripts."""
    out.print(text, highlight=False, soft_wrap=True, markup=False)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(rst_tune.__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version", callback=_print_version, is_eager=True)
    ] = False,
) -> None: ...


@app.command(epilog="Example: rst-tune run digits --set budget.pairs=20000")
def run(
    experiment: ExperimentName,
    settings: Settings = None,
    output: Annotated[Path | None, typer.Option(help="Directory of the search; on a cluster a shared path")] = None,
    earlier: Earlier = None,
    address: Address = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Move an earlier search there aside first")] = False,
    register: Annotated[str | None, typer.Option(help="Register the confirmed front's models under this name")] = None,
    quiet: Quiet = False,
) -> None:
    """Search, confirm, report. Run again, it resumes; a finished search prints its front."""
    chosen = api.load_experiment(experiment, settings or (), warm_start=earlier or ())
    where = api.output_directory(chosen, output)
    _remember(experiment, settings, output, address, register, earlier, log=api.text_log(where))
    say = (lambda _: None) if quiet else _say
    say(f"search {chosen.search_id} in {where}")
    if chosen.prior is not None:
        say(f"prior {chosen.prior.describe()}")
    with api.progress_view(err, quiet=quiet) as view:

        def show(found: Any) -> None:
            view.close()
            out.print(api.table("front", found, width=out.width))
            _echo(f"report: {where / api.REPORT_NAME}")

        found = api.search(
            chosen, where, address=address, overwrite=overwrite, view=view, say=say, on_result=show, register=register
        )
    if not found.points:  # all diverged or ran out of memory: there is nothing to train with
        raise typer.Exit(1)


@app.command(epilog="Example: rst-tune plan cifar10_resnet18 --json")
def plan(
    experiment: ExperimentName,
    settings: Settings = None,
    earlier: Earlier = None,
    address: Annotated[str | None, typer.Option(help="Count the slots of this Ray cluster")] = None,
    measure: Annotated[bool, typer.Option(help="Time a few training steps here")] = True,
    as_json: Json = False,
) -> None:
    """Validate an experiment and print what it costs; nothing is spent."""
    chosen = api.load_experiment(experiment, settings or (), warm_start=earlier or ())
    _show("estimate", asdict(api.plan(chosen, address=address, measure=measure)), as_json)


@app.command(epilog="Example: rst-tune train digits --schedule constant:p=0.5 --gamma-gnr 2")
def train(
    experiment: ExperimentName = "digits",
    settings: Settings = None,
    method: Annotated[
        Path | None, typer.Option(help="A YAML copied from the report: schedule, gamma_gnr, rule")
    ] = None,
    schedule: Annotated[str, typer.Option(help="family:parameter=value,…")] = "constant:p=0.5",
    gamma_gnr: Annotated[float, typer.Option(help="Degree of the mix, in units of rho")] = 1.0,
    rule: Annotated[str, typer.Option(help="Ascent rule (`rst-tune list rules`)")] = "sam",
    rho: Annotated[float | None, typer.Option(help="Radius; default: the recipe's")] = None,
    seed: int = 0,
    save: Annotated[Path | None, typer.Option(help="Write the trained weights (a state_dict) to this file")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train one configuration once, with a progress bar."""
    chosen = api.load_experiment(experiment, settings or (), search=False)
    _check_output(save)
    made = api.train(chosen, method_file=method, schedule=schedule, gamma_gnr=gamma_gnr, rule=rule, rho=rho, seed=seed)
    api.follow(made, chosen.metric, err, quiet=quiet or as_json)
    result = api.training_result(made, chosen.metric)
    if save is not None and made.status == "complete":
        result["model"] = str(api.save_model(made, save))
    _show("training", result, as_json)
    if made.status != "complete":
        raise typer.Exit(1)


@app.command(epilog="Example: rst-tune status")
def status(directory: Directory = None, as_json: Json = False) -> None:
    """Print how far a search is: done, running, stopped, failed, pairs, hypervolume, time left."""
    if as_json:
        _print_json(api.status(directory))
    else:
        out.print(api.table("status", api.analyze(directory)))


@app.command(epilog="Example: rst-tune watch --port 8700")
def watch(directory: Directory = None, port: Port = 0) -> None:
    """Serve the page of a running search on loopback, live; it ends with the search and leaves the offline page."""
    os.nice(10)  # the trials come first
    with api.watch(directory, port) as page:
        _say(page.text())
        page.wait()
    _echo(f"report: {api.write_report(api.analyze(page.path.parent))}")


@app.command(epilog="Example: rst-tune front --at 1.0")
def front(
    directory: Directory = None,
    at: Annotated[float | None, typer.Option(help="One point: at most this × the cost of a plain training")] = None,
    error: Annotated[float | None, typer.Option(help="One point: the cheapest with this value of the metric")] = None,
    cost: Cost = None,
    everything: Annotated[bool, typer.Option("--all", help="All rows of a long front")] = False,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="One line per point")] = False,
) -> None:
    """Print the front: error, standard error, seeds, P(non-dominated), test error."""
    if as_json and as_csv:
        raise InputError("a front is printed in one form, but --json and --csv are given: leave one of them out")
    found = api.analyze(directory, cost)
    point = api.front_point(found, at=at, error=error)
    rows = found.rows(None if point is None else [point])
    if as_json:
        _print_json(rows)
    elif as_csv:
        typer.echo(api.front_csv(rows), nl=False)
    elif point is not None:
        _echo(found.sentence(point))
    else:
        out.print(api.table("front", found, width=out.width, limit=None if everything else 12))


@app.command(epilog="Example: rst-tune report --output my_search.html")
def report(
    directory: Directory = None,
    output: Annotated[Path | None, typer.Option(help="The file; default: report.html beside the event log")] = None,
    cost: Cost = None,
    as_json: Json = False,
) -> None:
    """Write the offline HTML page and print its path."""
    _check_output(output)
    path = str(api.write_report(api.analyze(directory, cost), output))
    _print_json({"report": path}) if as_json else _echo(path)


@app.command(epilog="Example: rst-tune compare output/a output/b")
def compare(
    directories: Annotated[list[Path], typer.Argument(help="Two or more searches")],
    output: Annotated[Path | None, typer.Option(help="Write the comparison as an HTML page")] = None,
    cost: Cost = None,
    as_json: Json = False,
) -> None:
    """Compare fronts: hypervolume with intervals, attainment, differences at equal cost."""
    _check_output(output)
    made = api.compare(directories, output, cost)
    if as_json:
        _print_json(api.compare_rows(made))
    else:
        out.print(api.table("comparison", made))


@app.command(epilog="Example: rst-tune export --format parquet --output trials.parquet")
def export(
    directory: Directory = None,
    form: Annotated[str, typer.Option("--format", help="csv, parquet or json")] = "csv",
    output: Annotated[Path | None, typer.Option(help="The file; default: trials.FORMAT beside the event log")] = None,
) -> None:
    """Write every trial to a file and print its path."""
    _check_output(output)
    _echo(str(api.export(directory, form, output)))


@app.command(epilog="Example: rst-tune review --port 5000")
def review(directory: Directory = None, port: Port = 0) -> None:
    """Open MLflow's UI on a search and print filters and compare links; Ctrl-C ends it."""
    with api.ui(directory, port) as page:
        _echo(page.text())
        signal.pause()


@app.command(epilog="Example: rst-tune sync output/digits-1a2b3c4d")
def sync(
    directory: Directory = None,
    uri: Annotated[
        str | None, typer.Option(help="Tracking URI; default: MLFLOW_TRACKING_URI, else the local one")
    ] = None,
) -> None:
    """Send to MLflow what it does not have yet."""
    done = api.sync(directory, uri)
    _echo(f"sent {done.runs} runs and {done.metrics} metrics; {done.pending} events are left")
    if done.problem:
        _say(f"error: {done.problem}")
    if done.pending:
        raise typer.Exit(1)


@app.command(epilog="Example: rst-tune paper app-cf-res --against output/digits-1a2b3c4d")
def paper(
    table: Annotated[str | None, typer.Argument(help="A table of the paper; none lists them")] = None,
    against: Annotated[Path | None, typer.Option(help="A search to print beside it")] = None,
    as_json: Json = False,
) -> None:
    """Print the published tables, alone or beside your results."""
    if table is None:
        _show("listing", api.list_entries("tables"), as_json)
    elif as_json:
        _print_json(api.paper(table))
    else:
        own = api.analyze(against).summaries if against is not None else ()
        out.print(api.table("paper", table, summaries=own))


@app.command("list", epilog="Example: rst-tune list rules")
def list_(
    kind: Annotated[
        str, typer.Argument(help="schedules, rules, policies, models, data, spaces, experiments or tables")
    ],
    as_json: Json = False,
) -> None:
    """Print what there is, one line each."""
    _show("listing", api.list_entries(kind), as_json)


@app.command(epilog="Example: rst-tune doctor digits --address auto")
def doctor(
    experiment: ExperimentName = "digits",
    settings: Settings = None,
    address: Address = None,
    output: Annotated[Path | None, typer.Option(help="The shared directory that the search would use")] = None,
    as_json: Json = False,
) -> None:
    """Check Ray, devices, storage, tracking and data, from the driver and from every node."""
    checks = api.doctor(api.load_experiment(experiment, settings or ()), address=address, output=output)
    _show("checks", [asdict(check) for check in checks], as_json)
    if any(not check.ok for check in checks):
        raise typer.Exit(1)


INTERRUPTED = 130
_resume: dict[str, str] = {}  # the command that resumes the search, and the file of its log messages


def _remember(
    experiment: str,
    settings: list[str] | None,
    output: Path | None,
    address: str | None,
    register: str | None,
    earlier: list[Path] | None,
    *,
    log: Path,
) -> None:
    """Keep the command that resumes this search, for the message after an interruption."""
    words = ["rst-tune", "run", experiment, *(word for setting in settings or () for word in ("--set", setting))]
    words += [word for directory in earlier or () for word in ("--from", str(directory))]
    for option, value in (("--output", output), ("--address", address), ("--register", register)):
        words += [option, str(value)] if value else []
    _resume.update(command=shlex.join(words), log=str(log))


def _say(text: str) -> None:
    err.print(redact_text(text), highlight=False, soft_wrap=True, markup=False)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning without the place in the code that Python names."""
    _say(f"warning: {message}")


def _interrupted() -> int:
    _say("interrupted" + (f"; nothing is lost. Resume with: {_resume['command']}" if _resume else ""))
    return INTERRUPTED


def _failed(error: BaseException) -> int:
    _say(f"error: {type(error).__name__}: {error}")
    if _resume:
        log = logging.getLogger("rst_tune")
        details = f" Details: {_resume['log']}" if log.handlers else ""  # the file of a search that had begun
        _say(f"The search stopped; what it had done is kept.{details}")
        _say(f"When the cause is gone, resume with: {_resume['command']}")
        if log.handlers:  # without one, Python prints the traceback to the terminal
            log.error("the search stopped", exc_info=error)
    return 1


def _invoke() -> int:
    try:
        code = int(app(standalone_mode=False) or 0)
        return _interrupted() if code == INTERRUPTED else code
    except InputError as error:
        _say(f"error: {error}")
        return 2
    except ModuleNotFoundError as error:
        _say(f"error: {error}; for all packages of the search: pip install 'rst_tune[tune]'")
        return 1
    except UsageError as error:
        error.show()  # type: ignore[attr-defined]
        return 2
    except (typer.Abort, KeyboardInterrupt):
        return _interrupted()
    except Exception as error:  # noqa: BLE001  the last resort: one line, and where the rest is
        return _failed(error)


def main() -> None:
    """Run the command line and turn what happens into the documented exit codes."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    warnings.showwarning = _show_warning
    code = _invoke()
    for number in (signal.SIGINT, signal.SIGTERM):  # an impatient Ctrl-C while Ray ends is no traceback
        signal.signal(number, signal.SIG_DFL)
    sys.exit(code)


if __name__ == "__main__":
    main()
