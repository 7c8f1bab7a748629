"""Counts that say how hard the package is to take over: files, lines, private helpers, untyped seams.

python experiments/benchmarks/house.py            # this checkout
python experiments/benchmarks/house.py DIRECTORY  # another one, to compare
"""

import ast
import re
import sys
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

FEATURES = {
    "five more rules, policies": (
        "method/ascent/ahead.py", "method/ascent/fsam.py", "method/ascent/kept.py", "method/ascent/msam.py",
        "method/ascent/s2sam.py", "method/ascent/samon.py", "method/ascent/vasso.py", "method/options.py",
        "method/policies.py",
    ),
    "FSDP2, batch norm over ranks": ("method/sharding.py", "training/batch_norm.py"),
    "lengths, radii and seconds as coordinates": (
        "analysis/baselines.py", "analysis/cost.py", "analysis/surface.py", "method/schedules/functionals.py",
        "report/cost_axis.py",
    ),
    "searches over a user's function, metrics": (
        "records/metric.py", "training/coroutine.py", "training/function.py", "training/function_run.py",
        "training/stateful.py", "training/user_code.py",
    ),
    "frameworks and plain scripts": ("integrations/*",),
    "the live page": ("report/live.py",),
    "checks of .npz files": ("training/arrays.py",),
    "the simulator, before outside of the package": ("tuning/backend/simulator.py",),
}  # fmt: skip
"""Files that hold nothing but a feature that version 0.1.0 did not have, as patterns."""

EDGES = {
    "torch's state dicts and param groups": (
        "*:state_dict", "*:load_state_dict", "*:__getstate__", "*:__setstate__", "method/wrapper.py:*param_group*",
        "training/checkpoint.py:*", "training/*:_state", "training/*:_load_state",
        "training/function_run.py:_load", "training/stateful.py:_now",
    ),
    "Ray's own shapes": ("tuning/backend/ray.py:*", "tuning/backend/trainable.py:*", "integrations/ray.py:*"),
    "Optuna's and transformers' own shapes": ("*:sample_relative", "integrations/transformers.py:training_step"),
    "JSON, YAML and rows of tables": (
        "*:to_dict", "*:describe", "tuning/yaml_files.py:*", "tuning/experiment.py:*", "tuning/search.py:_identity",
        "tuning/search.py:_flat", "api.py:*", "analysis/export.py:*", "analysis/analysis.py:rows",
        "report/tables.py:comparison_rows", "report/status.py:status_rows", "report/page.py:figure_data",
        "report/page_data.py:trial_columns", "method/optimizer.py:settings",
    ),
}  # fmt: skip
"""Where `dict[str, Any]` is the shape of somebody else or of a file, as patterns of file:function."""


SEARCH = (
    "tuning/sampler.py", "tuning/model.py", "tuning/proposals.py", "tuning/points.py", "tuning/confirmation.py",
    "analysis/surrogate.py", "analysis/features.py", "analysis/replicates.py", "analysis/rungs.py",
    # … and of version 0.1.0:
    "tuning/chooser.py", "tuning/draws.py", "tuning/priors.py", "tuning/confirm.py", "analysis/kernel.py",
    "analysis/process.py", "analysis/relation.py", "analysis/beliefs.py", "analysis/posterior.py", "analysis/noise.py",
)  # fmt: skip
"""What samples, predicts and confirms."""


def functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def statements(function: ast.FunctionDef) -> int:
    """Return the statements of a body without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return sum(isinstance(node, ast.stmt) for part in body for node in ast.walk(part))


def mentions(function: ast.FunctionDef, text: str) -> bool:
    """Return whether an annotation of a signature contains a text."""
    parts = [*function.args.args, *function.args.kwonlyargs, *function.args.posonlyargs]
    texts = [ast.unparse(part.annotation) for part in parts if part.annotation]
    texts += [ast.unparse(function.returns)] if function.returns else []
    return any(text in each for each in texts)


def first_match(name: str, groups: dict[str, tuple[str, ...]]) -> str | None:
    """Return the first group with a pattern that fits the name."""
    return next((group for group, patterns in groups.items() if any(fnmatch(name, p) for p in patterns)), None)


def is_code(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def docstring_lines(tree: ast.Module) -> int:
    """Return the lines of docstrings, those behind attributes and constants among them."""
    texts = (n for n in ast.walk(tree) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))
    return sum((n.end_lineno or n.lineno) - n.lineno + 1 for n in texts if isinstance(n.value.value, str))


def named_numbers(tree: ast.Module) -> tuple[int, int]:
    """Return how many constants of a module hold numbers, and how many numbers these are."""
    names = numbers = 0
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            found = [each.id for each in ast.walk(target) if isinstance(each, ast.Name)]
            constants = [each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)]
            held = sum(isinstance(value, int | float) and not isinstance(value, bool) for value in constants)
            if held and all(name.isupper() for name in found):
                names, numbers = names + len(found), numbers + held
    return names, numbers


def count(package: Path) -> dict[str, object]:
    """Return the counts of one package."""
    sources = {path.relative_to(package).as_posix(): path.read_text() for path in sorted(package.rglob("*.py"))}
    trees = {name: ast.parse(text) for name, text in sources.items()}
    found = [(name, function) for name, tree in trees.items() for function in functions(tree)]
    uses = Counter(word for text in sources.values() for word in re.findall(r"\b_[a-z]\w*", text))
    private = [f for _, f in found if f.name.startswith("_") and not f.name.startswith("__")]
    once = [f for f in private if uses[f.name] == 2]  # its definition and one use
    lines = {name: len(text.splitlines()) for name, text in sources.items()}
    code = sum(map(is_code, "\n".join(sources.values()).splitlines())) - sum(map(docstring_lines, trees.values()))
    rooms = Counter(name.split("/")[0] for name in sources if "/" in name)
    lines_of_rooms = {room: sum(n for name, n in lines.items() if name.startswith(f"{room}/")) for room in rooms}
    features = Counter[str]()
    for name, number in lines.items():
        features[first_match(name, FEATURES) or "the rest"] += number
    search = [name for name in SEARCH if name in sources]
    names, numbers = map(sum, zip(*(named_numbers(trees[name]) for name in search), strict=True))
    untyped = [f"{name}:{f.name}" for name, f in found if mentions(f, "dict[str, Any]")]
    edges = Counter(first_match(name, EDGES) or "inside" for name in untyped)
    return {
        "files": len(sources),
        "lines": sum(lines.values()),
        "… of code, without docstrings, comments and empty lines": code,
        "… by room": lines_of_rooms,
        "… in files of features that 0.1.0 did not have": dict(features.most_common()),
        "… of what samples, predicts and confirms": sum(lines[name] for name in search),
        "named constants with numbers there, numbers in them": (names, numbers),
        "files per room": dict(rooms),
        "private helpers": len(private),
        "… used once": len(once),
        "… of a single statement": sum(statements(f) == 1 for f in once),
        "signatures with dict[str, Any]": len(untyped),
        "… at an edge, and inside": dict(edges.most_common()),
        "… inside": [name for name in untyped if first_match(name, EDGES) is None],
        "signatures with Mapping[str, Any]": sum(mentions(f, "Mapping[str, Any]") for _, f in found),
    }


def main() -> None:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    for name, value in count(root / "rst_tune").items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
