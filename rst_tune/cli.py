"""The command line: it parses and delegates. Exit codes: 0 done, 1 the work failed, 2 wrong input, 130 interrupted."""

import json
import logging
import shlex
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import click
import typer
from rich.console import Console

import rst_tune
from rst_tune import workflow
from rst_tune.errors import InputError, unknown_name

__all__ = ["app", "main"]

app = typer.Typer(
    name="rst-tune",
    help="Find the randomized sharpness-aware training schedule that is worth its compute.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
out, err = Console(), Console(stderr=True)

ExperimentName = Annotated[
    str, typer.Argument(help="A shipped experiment (`rst-tune list experiments`) or a YAML file")
]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a field: a.b=c")]
Directory = Annotated[
    Path | None, typer.Argument(help="Output directory of a search; default: the latest", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout and nothing else")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only")]
Address = Annotated[str | None, typer.Option(help="A running Ray cluster; default: RAY_ADDRESS, else a local one")]


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(rst_tune.__version__)
        raise typer.Exit


@app.command(epilog="Example: rst-tune run digits --set budget.pairs=20000")
def run(
    experiment: ExperimentName,
    settings: Settings = None,
    output: Annotated[Path | None, typer.Option(help="Where the search lives; on a cluster a shared path")] = None,
    address: Address = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Remove an earlier search there first")] = False,
    register: Annotated[str | None, typer.Option(help="Register the confirmed front's models under this name")] = None,
    quiet: Quiet = False,
) -> None:
    """Search, confirm, report. Run again, it resumes; a finished search says so."""
    from rst_tune.analysis import fronts
    from rst_tune.report import terminal
    from rst_tune.report.progress import ProgressView
    from rst_tune.tuning.experiment import load_experiment
    from rst_tune.tuning.run import LOG_NAME, default_output

    chosen = load_experiment(experiment, settings or ())
    where = output or default_output(chosen)
    _remember(experiment, settings, output, address, log=where / LOG_NAME)
    view = ProgressView(err, quiet=quiet)
    if not quiet:
        _say(f"search {chosen.search_id} in {where}")
        if not fresh and workflow.is_finished(where):
            _say("it is finished already and nothing is trained; --fresh starts it anew")
    with view:
        found = workflow.search(
            chosen, where, address=address, fresh=fresh, show=view.show, due=view.due, register=register
        )
    out.print(terminal.front_table(fronts.delivered(found)))
    out.print(f"report: {found.directory / workflow.REPORT_NAME}", highlight=False, soft_wrap=True)


@app.command(epilog="Example: rst-tune plan cifar10_resnet18 --json")
def plan(
    experiment: ExperimentName,
    settings: Settings = None,
    address: Annotated[str | None, typer.Option(help="Count the slots of this Ray cluster")] = None,
    measure: Annotated[bool, typer.Option(help="Time a few training steps here")] = True,
    as_json: Json = False,
) -> None:
    """Validate an experiment and say what it will cost; nothing is spent."""
    from rst_tune.report import tables
    from rst_tune.tuning.doctor import slots_of
    from rst_tune.tuning.experiment import load_experiment
    from rst_tune.tuning.plan import estimate

    chosen = load_experiment(experiment, settings or ())
    made = estimate(chosen, slots=slots_of(chosen.resources, address), measure=measure)
    if as_json:
        _print_json(made.to_dict())
    else:
        out.print(tables.estimate_table(made.to_dict()))


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
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train one configuration once, with a progress bar."""
    from rst_tune.report import tables
    from rst_tune.tuning.experiment import load_experiment

    chosen = load_experiment(experiment, settings or ())
    made, progress = workflow.train(
        chosen, method_file=method, schedule=schedule, gamma_gnr=gamma_gnr, rule=rule, rho=rho, seed=seed
    )
    tables.follow(progress, err, quiet=quiet or as_json)
    result = workflow.training_result(made)
    if as_json:
        _print_json(result)
    else:
        out.print(tables.training_table(result))


@app.command(epilog="Example: rst-tune status")
def status(directory: Directory = None, as_json: Json = False) -> None:
    """Say how a search stands: done, running, stopped, failed, pairs, hypervolume, time left."""
    from rst_tune.report import terminal

    if as_json:
        _print_json(workflow.status(directory))
    else:
        found = workflow.find_search(directory)
        out.print(terminal.status_table(found, workflow.time_left(found)))


@app.command(epilog="Example: rst-tune front --csv > front.csv")
def front(
    directory: Directory = None, as_json: Json = False, as_csv: Annotated[bool, typer.Option("--csv")] = False
) -> None:
    """Print the front: error, standard error, seeds, P(non-dominated), test error."""
    from rst_tune.analysis import fronts
    from rst_tune.report import terminal

    found = workflow.find_search(directory)
    if as_json:
        _print_json(fronts.delivered(found).rows())
    elif as_csv:
        workflow.write_csv(fronts.delivered(found).rows(), sys.stdout)
    else:
        out.print(terminal.front_table(fronts.delivered(found)))


@app.command(epilog="Example: rst-tune report --output my_search.html")
def report(directory: Directory = None, output: Annotated[Path | None, typer.Option()] = None) -> None:
    """Write the offline HTML page and print its path."""
    typer.echo(workflow.write_report(workflow.find_search(directory), output))


@app.command(epilog="Example: rst-tune compare output/a output/b")
def compare(
    directories: Annotated[list[Path], typer.Argument(help="Two or more searches")],
    output: Annotated[Path | None, typer.Option(help="Write the comparison as an HTML page")] = None,
    as_json: Json = False,
) -> None:
    """Compare fronts: hypervolume with intervals, attainment, differences at equal cost."""
    from rst_tune.report import tables, terminal

    made = workflow.compare(directories, output)
    if as_json:
        _print_json(tables.comparison_rows(made))
    else:
        out.print(terminal.compare_table(made))


@app.command(epilog="Example: rst-tune export --format parquet --output trials.parquet")
def export(
    directory: Directory = None,
    form: Annotated[str, typer.Option("--format", help="csv, parquet or json")] = "csv",
    output: Annotated[Path | None, typer.Option(help="The file; default: trials.FORMAT beside the record")] = None,
) -> None:
    """Write every trial to a file and print its path."""
    typer.echo(workflow.export(directory, form, output))


@app.command(epilog="Example: rst-tune review --port 5000")
def review(directory: Directory = None, port: Annotated[int, typer.Option(help="0 picks a free one")] = 0) -> None:
    """Open MLflow's UI on a search and print filters and compare links; Ctrl-C ends it."""
    from rst_tune import tracking

    with tracking.review(workflow.find_search(directory).directory, port=port) as page:
        out.print(page.text(), highlight=False, soft_wrap=True)
        signal.pause()


@app.command(epilog="Example: rst-tune sync output/digits-1a2b3c4d")
def sync(
    directory: Directory = None,
    uri: Annotated[
        str | None, typer.Option(help="Tracking URI; default: MLFLOW_TRACKING_URI, else the local one")
    ] = None,
) -> None:
    """Deliver the record to MLflow by hand."""
    from rst_tune import tracking

    done = tracking.sync(workflow.find_search(directory).directory, uri)
    typer.echo(f"delivered {done.runs} runs and {done.metrics} metrics; {done.left} events are left")
    if done.left:
        raise typer.Exit(1)


@app.command(epilog="Example: rst-tune paper constant --against output/digits-1a2b3c4d")
def paper(
    table: Annotated[str | None, typer.Argument(help="A table of the paper; none lists them")] = None,
    against: Annotated[Path | None, typer.Option(help="A search to print beside it")] = None,
    as_json: Json = False,
) -> None:
    """Print the published tables, alone or beside your results."""
    from rst_tune.analysis import noise, published
    from rst_tune.report import tables, terminal

    if table is None:
        out.print(tables.listing_table([{"name": n, "description": d} for n, d in published.TABLES.items()]))
        return
    rows = published.table(table)
    if as_json:
        _print_json([asdict(row) for row in rows])
    else:
        own = noise.summarise(workflow.find_search(against)) if against is not None else ()
        out.print(terminal.paper_table(table, own))


@app.command("list", epilog="Example: rst-tune list rules")
def list_(
    kind: Annotated[str, typer.Argument(help="schedules, rules, models, data, spaces or experiments")],
    as_json: Json = False,
) -> None:
    """Say what there is, one line each."""
    from rst_tune.report import tables

    if kind not in workflow.LISTINGS:
        raise unknown_name("kind", kind, workflow.LISTINGS)
    entries = workflow.LISTINGS[kind]()
    if as_json:
        _print_json(entries)
    else:
        out.print(tables.listing_table(entries))


@app.command(epilog="Example: rst-tune doctor digits --address ray://head:10001")
def doctor(
    experiment: ExperimentName = "digits",
    settings: Settings = None,
    address: Address = None,
    output: Annotated[Path | None, typer.Option(help="The shared directory that the search would use")] = None,
    as_json: Json = False,
) -> None:
    """Check Ray, devices, storage, tracking and data, from the driver and from every node."""
    from rst_tune.report import tables
    from rst_tune.tuning.doctor import examine
    from rst_tune.tuning.experiment import load_experiment

    checks = examine(load_experiment(experiment, settings or ()), address=address, output=output)
    if as_json:
        _print_json([check.to_dict() for check in checks])
    else:
        out.print(tables.checks_table([check.to_dict() for check in checks]))
    if any(not check.ok for check in checks):
        raise typer.Exit(1)


INTERRUPTED = 130
_resume: dict[str, str] = {}


def _remember(
    experiment: str, settings: list[str] | None, output: Path | None, address: str | None, *, log: Path
) -> None:
    """Remember how this search is taken up again, for whoever interrupts it."""
    words = ["rst-tune", "run", experiment, *(f"--set {shlex.quote(s)}" for s in settings or ())]
    words += [f"--output {shlex.quote(str(output))}"] if output else []
    words += [f"--address {address}"] if address else []
    _resume.update(command=" ".join(words), log=str(log))


def _terminated(*_: object) -> None:
    raise KeyboardInterrupt


def _say(text: str) -> None:
    err.print(text, highlight=False, soft_wrap=True, markup=False)


def _interrupted() -> int:
    _say("interrupted" + (f"; nothing is lost. Resume with: {_resume['command']}" if _resume else ""))
    return INTERRUPTED


def _failed(error: BaseException) -> int:
    _say(f"error: {type(error).__name__}: {error}")
    if _resume:
        _say(f"The search stopped; what it had done is kept. Details: {_resume['log']}")
        _say(f"When the cause is gone, resume with: {_resume['command']}")
        logging.getLogger("rst_tune").error("the search stopped", exc_info=error)
    return 1


def _invoke() -> int:
    try:
        code = int(app(standalone_mode=False) or 0)
        return _interrupted() if code == INTERRUPTED else code
    except InputError as error:
        _say(f"error: {error}")
        return 2
    except click.ClickException as error:
        error.show()
        return 2
    except (click.Abort, KeyboardInterrupt):
        return _interrupted()
    except Exception as error:  # noqa: BLE001  the last resort: one line, and where the rest is
        return _failed(error)


def main() -> None:
    """Run the command line and turn what happens into the documented exit codes."""
    signal.signal(signal.SIGTERM, _terminated)
    sys.exit(_invoke())
