"""Counts that say how hard the package is to take over: files, lines, private helpers, untyped seams.

python experiments/benchmarks/house.py            # this checkout
python experiments/benchmarks/house.py DIRECTORY  # another one, to compare
"""

import ast
import re
import sys
from collections import Counter
from pathlib import Path


def functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def statements(function: ast.FunctionDef) -> int:
    """Return the statements of a body without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return sum(isinstance(node, ast.stmt) for part in body for node in ast.walk(part))


def is_untyped(function: ast.FunctionDef) -> bool:
    """Return whether a signature has `dict[str, Any]` in it."""
    parts = [*function.args.args, *function.args.kwonlyargs, *function.args.posonlyargs]
    texts = [ast.unparse(part.annotation) for part in parts if part.annotation]
    texts += [ast.unparse(function.returns)] if function.returns else []
    return any("dict[str, Any]" in text for text in texts)


def count(package: Path) -> dict[str, object]:
    """Return the counts of one package."""
    sources = {path: path.read_text() for path in sorted(package.rglob("*.py"))}
    found = {path: functions(ast.parse(text)) for path, text in sources.items()}
    uses = Counter(word for text in sources.values() for word in re.findall(r"\b_[a-z]\w*", text))
    private = [f for fs in found.values() for f in fs if f.name.startswith("_") and not f.name.startswith("__")]
    once = [f for f in private if uses[f.name] == 2]  # its definition and one use
    rooms = Counter(path.relative_to(package).parts[0] for path in sources if path.parent != package)
    untyped = Counter(path.relative_to(package).as_posix() for path, fs in found.items() for f in fs if is_untyped(f))
    return {
        "files": len(sources),
        "lines": sum(len(text.splitlines()) for text in sources.values()),
        "files per room": dict(rooms),
        "private helpers": len(private),
        "… used once": len(once),
        "… of a single statement": sum(statements(f) == 1 for f in once),
        "signatures with dict[str, Any]": sum(untyped.values()),
        "… by file": dict(untyped.most_common()),
    }


def main() -> None:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    for name, value in count(root / "rst_tune").items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
