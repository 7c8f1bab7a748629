"""A hook of mkdocs: the reference pages of the YAML fields and of the command line, made from the code."""

import ast
import inspect
import itertools
import json
import re
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from rst_tune.cli import app
from rst_tune.training.function import FunctionTask
from rst_tune.training.task import DataSpec, ModelSpec, Recipe
from rst_tune.tuning import experiment as parts
from rst_tune.tuning.backend.resources import Resources
from rst_tune.tuning.space import Range, Space

EXPERIMENT: dict[str, type[BaseModel]] = {
    "": parts.Experiment,
    "task.data": DataSpec,
    "task.model": ModelSpec,
    "task.recipe": Recipe,
    "task (a function)": FunctionTask,
    "budget": parts.Budget,
    "sampler": parts.Sampler,
    "fidelity": parts.Fidelity,
    "stopping": parts.Stopping,
    "confirm": parts.Confirm,
    "resources": Resources,
    "tracking": parts.Tracking,
    "reference_point": parts.ReferencePoint,
}
NOTES = yaml.safe_load((Path(__file__).parent / "fields.yaml").read_text())
FILLED_IN = {(parts.Experiment, "name"): "the file's name"}  # by the reader of the file, not by the model
SPACE: dict[str, type[BaseModel]] = {"": Space, "a range": Range}
BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<", "minLength": "length ≥"}


def model_pages() -> dict[str, str]:
    """Return the pages of the two kinds of YAML files by path."""
    return {
        "reference/experiment.md": _page(
            "Experiment YAML",
            "The fields of an experiment file. `rst-tune run FILE --set a.b=c` overrides any of them; unknown fields "
            "are errors. A task has `data`, `model` and `recipe`, or a `function`. This page is made from the code.",
            EXPERIMENT,
        ),
        "reference/space.md": _page(
            "Search space YAML",
            "The fields of a search space: a file that `space:` of an experiment names, or the fields themselves "
            "there; with `base:` a shipped space with some fields changed. An axis is a number, a list or a range. "
            "This page is made from the code.",
            SPACE,
        ),
    }


def _page(title: str, text: str, models: dict[str, type[BaseModel]]) -> str:
    return "\n\n".join([f"# {title}", text, *(_section(path, model) for path, model in models.items())]) + "\n"


def _section(path: str, model: type[BaseModel]) -> str:
    described = re.sub(r"\n\n>>>.*", "", inspect.getdoc(model) or "", flags=re.DOTALL)
    schema = model.model_json_schema()
    notes = field_notes(model)
    rows = ["| field | type | default | description |", "| --- | --- | --- | --- |"]
    for name, field in schema["properties"].items():
        default = "needed" if name in schema.get("required", ()) else _default(model, name)
        default = FILLED_IN.get((model, name), default)
        cells = [f"`{name}`", _type(field, schema.get("$defs", {})), default, notes.get(name, "")]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n\n".join(filter(None, [f"## {path}" if path else "", described, "\n".join(rows)]))


def _default(model: type[BaseModel], name: str) -> str:
    """Return the default as it is written in YAML; a nested part has a section of its own."""
    value = model.model_fields[name].get_default(call_default_factory=True)
    if isinstance(value, BaseModel) and not isinstance(value, Range):
        return "its own defaults"
    if value is None or value in ("", {}, [], ()):
        return "none" if value is None else "empty"
    return f"`{json.dumps(value, default=_plain)}`".replace('"', "")


def _plain(value: Any) -> Any:
    return value.model_dump(exclude_defaults=True) if isinstance(value, BaseModel) else asdict(value)


def _type(field: dict[str, Any], definitions: dict[str, Any]) -> str:
    """Return a JSON schema in words: the type, the choices or the bounds."""
    if "$ref" in field:
        name = field["$ref"].rsplit("/", 1)[-1]
        if definitions[name].get("type") != "object":
            return _type(definitions[name], definitions)
        anchor = {"Range": "a-range"}.get(name, re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower())
        return f"[{name}](#{anchor})" if anchor in (*EXPERIMENT, "a-range") else "mapping"
    for key in ("anyOf", "oneOf", "allOf"):
        if key in field:
            return " or ".join(dict.fromkeys(_type(part, definitions) for part in field[key]))
    if "enum" in field or "const" in field:
        return ", ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))
    names = {
        "null": "none",
        "number": "number",
        "integer": "whole number",
        "boolean": "true or false",
        "string": "text",
    }
    kind = field.get("type", "anything")
    if kind == "array":
        return f"list of {_type(field.get('items', {}), definitions)}"
    limits = [f"{sign}\u00a0{field[key]:g}" for key, sign in BOUNDS.items() if key in field]
    return " ".join([names.get(kind, "mapping" if kind == "object" else kind), ", ".join(limits)]).strip()


def field_notes(model: type[BaseModel]) -> dict[str, str]:
    """Return the descriptions of a model's fields: those of the code, and those of fields.yaml."""
    return {**_attribute_docs(model), **NOTES.get(model.__name__, {})}


def _attribute_docs(model: type[BaseModel]) -> dict[str, str]:
    """Return the string that follows each field in the source, by field."""
    body = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0].body  # type: ignore[attr-defined]
    found = {}
    for field, text in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            found[ast.unparse(field.target)] = " ".join(str(text.value.value).split())
    return found


def command_page() -> str:
    """Return the page of the command line: every command with its arguments and options."""
    import typer

    root = typer.main.get_command(app)
    lines = [
        "# Command line",
        "`rst-tune COMMAND --help` prints the same. `DIRECTORY` is the output directory of a search, by default the "
        "latest. Exit codes: 0 done, 1 the work failed, 2 the input is wrong and nothing was started, 130 interrupted. "
        "This page is made from the code.",
    ]
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        lines += [f"## {name}", str(command.help), "\n".join(_parameters(command)), _example(command.epilog)]
    return "\n\n".join(filter(None, lines)) + "\n"


def _example(epilog: str | None) -> str:
    return "```bash\n" + epilog.removeprefix("Example: ") + "\n```" if epilog else ""


def _parameters(command: Any) -> list[str]:
    rows = ["| argument or option | default | description |", "| --- | --- | --- |"]
    for parameter in command.params:
        option = parameter.param_type_name == "option"
        name = ", ".join(parameter.opts) if option else parameter.name.upper()
        metavar = "" if not option or getattr(parameter, "is_flag", False) else " " + (parameter.metavar or "VALUE")
        default = "needed" if parameter.required else _shown(parameter.default)
        rows.append(f"| `{name}{metavar}` | {default} | {getattr(parameter, 'help', None) or ''} |")
    return rows


def _shown(default: Any) -> str:
    return "" if default is None or default is False else "yes" if default is True else f"`{default}`"


def on_files(files: Any, config: Any) -> Any:
    """Add the pages to those of docs/."""
    from mkdocs.structure.files import File

    for path, text in {**model_pages(), "reference/cli.md": command_page()}.items():
        files.append(File.generated(config, path, content=text))
    return files
