"""Without the packages of an extra a message has the command that installs them; the library imports none of them."""

import subprocess
import sys

import pytest


def python(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def without(*packages: str) -> str:
    """Return the line that makes the import of packages fail."""
    return f"import sys; sys.modules.update(dict.fromkeys({packages!r}))\n"


@pytest.mark.parametrize(("name", "extra"), [("lightning",) * 2, ("transformers",) * 2, ("ray", "tune")])
def test_a_missing_package_is_named_with_its_extra(name, extra):
    code = (
        without(name) + f"try: import rst_tune.integrations.{name}\n"
        "except ImportError as error: print(error)\n"
        "print(sorted({'lightning', 'transformers', 'accelerate'} & {m for m, v in sys.modules.items() if v}))"
    )
    done = python(code)
    assert f"pip install 'rst_tune[{extra}]'" in done.stdout
    assert done.stdout.endswith("[]\n")


SEARCH = ("numpy", "pydantic", "yaml", "optuna", "ray", "mlflow", "scipy", "sklearn", "plotly", "rich", "typer")


def test_the_optimizer_works_without_any_extra():
    code = (
        without(*SEARCH) + "import torch, rst_tune\n"
        "model = torch.nn.Linear(2, 1)\n"
        "base = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "opt = rst_tune.RST(base, model, schedule=rst_tune.schedules.constant(1.0), total_steps=1, rho=0.1)\n"
        "opt.step(lambda: model(torch.ones(1, 2)).sum())\n"
        "print(opt.pairs)"
    )
    done = python(code)
    assert done.stdout.strip() in ("2", "2.0"), done.stderr


@pytest.mark.parametrize("missing", [SEARCH, ("ray",)], ids=lambda m: m[-1])
def test_the_command_line_says_how_to_install_the_search(missing, tmp_path):
    code = without(*missing) + "from rst_tune.cli import main; main()"
    done = python(code, "run", "digits", "--output", str(tmp_path))
    assert done.returncode == 1
    assert "pip install 'rst_tune[tune]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("missing", [SEARCH, ("ray",)], ids=lambda m: m[-1])
def test_the_search_in_python_says_how_to_install_it(missing):
    done = python(without(*missing) + "import rst_tune; rst_tune.search")
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: rst_tune.search needs ray")
    assert last.endswith("pip install 'rst_tune[tune]'")


@pytest.mark.parametrize(("package", "model"), [("timm", "vit-ti"), ("pytorchcv", "wrn-28-10")])
def test_a_model_of_a_missing_package_says_how_to_install_it(package, model):
    code = without(package) + "from rst_tune.cli import main; main()"
    done = python(code, "plan", "digits", "--set", f"task.model.name={model}")
    assert done.returncode == 2
    assert "pip install 'rst_tune[models]'" in done.stderr
