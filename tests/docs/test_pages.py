"""Every snippet of docs/ works: Python runs, YAML loads, commands parse.

Python marked `.norun` starts a search: its lines stand in an example or in the README, which are run.
"""

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml

from rst_tune.cli import app
from rst_tune.records import Metric
from rst_tune.training.function_run import FunctionRun, RunSpec
from rst_tune.training.task import Method
from rst_tune.tuning import yaml_files
from rst_tune.tuning.experiment import load_experiment
from rst_tune.tuning.space import Space
from tests.browser import MISSING, browser

ROOT = Path(__file__).parents[2]
PAGES = sorted(p for folder in (".", "concepts", "howto") for p in (ROOT / "docs" / folder).glob("*.md"))
METHOD = Method(schedule={"family": "constant", "p": 0.5})
METRIC = Metric(name="loss", unit="")
INSTALLED = all(importlib.util.find_spec(name) for name in ("mkdocs", "material", "mkdocstrings"))


def snippets(language: str) -> list[tuple[str, str]]:
    """Return (page, code) of all blocks of a language."""
    blocks = [
        (page, re.findall(rf"```{re.escape(language)}\n(.*?)```", page.read_text(), flags=re.DOTALL)) for page in PAGES
    ]
    return [(str(page.relative_to(ROOT / "docs")), block) for page, found in blocks for block in found]


def test_there_are_snippets_of_every_kind():
    assert min(len(snippets(language)) for language in ("python", "yaml", "bash")) >= 4


@pytest.mark.parametrize("page", sorted({page for page, _ in snippets("python")}))
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    """Run the blocks of a page one after another, and one epoch of the training function, if there is one."""
    for package in ("lightning", "transformers"):
        if f"integrations.{package}" in (ROOT / "docs" / page).read_text():
            pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "snippet"}
    for code in (code for name, code in snippets("python") if name == page):
        exec(compile(code, page, "exec"), names)
    if "train" in names:
        run = FunctionRun(
            RunSpec(name="own", function=names["train"], method=METHOD, metric=METRIC, seed=0, epochs=2, rho=0.1)
        )
        run.epoch()
        assert run.history["loss"]
        run.close()


def test_python_that_is_not_run_here_is_run_elsewhere():
    run = "".join(path.read_text() for path in [ROOT / "README.md", *(ROOT / "examples").glob("*.py")])
    lines = {line.strip() for line in run.splitlines()}
    for page, code in snippets("{.python .norun}"):
        assert not [line for line in code.splitlines() if line.strip() not in lines], page


@pytest.mark.parametrize(("page", "text"), snippets("yaml"), ids=lambda text: text[:24])
def test_yaml_loads(page, text, tmp_path):
    if text.startswith("# a search space"):
        Space.model_validate(yaml.safe_load(text))
        return
    (tmp_path / "mine.yaml").write_text(text)
    load_experiment(str(tmp_path / "mine.yaml"))


def commands() -> list[tuple[str, str]]:
    lines = [(page, line.split("#")[0].strip()) for page, block in snippets("bash") for line in block.splitlines()]
    return [(page, line) for page, line in lines if line and not line.startswith("pip install")]


@pytest.mark.parametrize(("page", "line"), commands())
def test_a_command_parses(page, line):
    words = shlex.split(line)
    assert words[0] == "rst-tune", f"{page}: mark the block .norun"
    command = typer.main.get_command(app).commands[words[1]]
    context = command.make_context(words[1], words[2:])  # raises on an unknown option or a missing argument
    experiment = context.params.get("experiment")
    if experiment in yaml_files.shipped("experiments"):
        assert load_experiment(experiment, context.params["settings"] or (), search=words[1] != "train").name


def test_every_extra_that_is_named_exists():
    named = {extra for page in PAGES for extra in re.findall(r"rst_tune\[(\w+)\]", page.read_text())}
    assert named
    project = (ROOT / "pyproject.toml").read_text()
    assert all(re.search(rf"^{extra} = \[", project, re.MULTILINE) for extra in named)


def test_every_field_of_the_yaml_files_is_described():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    for model in (*generate.EXPERIMENT.values(), *generate.SPACE.values()):
        missing = set(model.model_fields) - set(generate.field_notes(model))
        assert not missing, f"add a line to docs/fields.yaml, or a string below the field: {model.__name__} {missing}"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if not INSTALLED:
        pytest.skip("needs pip install 'rst_tune[docs]'; `make docs` installs it")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_loads_nothing_from_the_network(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        assert not re.findall(
            r"<(?:script|img|link|iframe)\b[^>]*(?:src|href)=[\"']?(?:https?:)?//", page.read_text()
        ), page


def test_every_link_of_the_site_has_its_target(site):
    for page in site.rglob("*.html"):
        for target in re.findall(r"(?:href|src)=[\"']?([^\"' >]+)", page.read_text()):
            if page.name == "404.html" or target.startswith(("http", "data:", "mailto:", "javascript:")):
                continue
            path, _, anchor = target.partition("#")
            file = (page.parent / path) if path else page
            file = file / "index.html" if file.is_dir() else file
            assert file.exists(), f"{page.name}: {target}"
            if anchor and file.suffix == ".html" and anchor != "__skip":
                assert re.search(rf"id=[\"']?{re.escape(anchor)}\b", file.read_text()), f"{page.name}: {target}"


def test_the_reference_has_every_field(site):
    text = (site / "reference" / "experiment.html").read_text()
    for field in ("label_noise", "device_hours", "checkpoint_seconds", "min_finished", "max_seeds"):
        assert f"<code>{field}</code>" in text


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_search_works_from_the_file_system(site):
    with browser() as page:
        page.open(site / "index.html")
        page.click("[data-md-component=search-query]")
        page.type("[data-md-component=search-query]", "hypervolume")
        page.wait("document.querySelectorAll('.md-search-result__item').length > 0")
        assert page.outside() == []
        assert page.console() == []
