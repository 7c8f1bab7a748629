"""The launch files: parsed, checked for what each must say, and against the options that Ray really has."""

import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from rst_tune.tuning.backend.resources import Resources

DEPLOY = Path(__file__).parents[2] / "deploy"
SCRIPTS = sorted(DEPLOY.glob("*.sh"))


def read(name: str) -> dict:
    return yaml.safe_load((DEPLOY / name).read_text())


def conforms(value: object, schema: object, place: str = "") -> list[str]:
    """Return where `value` differs from a schema of nested dicts, one-element lists, types and predicates."""
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            return [f"{place}: not a mapping"]
        return [e for k, s in schema.items() for e in conforms(value.get(k), s, f"{place}.{k}")]
    if isinstance(schema, list):
        if not isinstance(value, list) or not value:
            return [f"{place}: not a list with something in it"]
        return [e for n, item in enumerate(value) for e in conforms(item, schema[0], f"{place}[{n}]")]
    if isinstance(schema, type):
        return [] if isinstance(value, schema) else [f"{place}: {value!r} is no {schema.__name__}"]
    good = schema(value) if callable(schema) else value == schema
    return [] if good else [f"{place}: {value!r}"]


CONTAINER = {
    "name": str,
    "image": str,
    "envFrom": [{"secretRef": {"name": str}}],
    "resources": {"requests": dict, "limits": dict},
    "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
}
VOLUME = {"name": "shared", "persistentVolumeClaim": {"claimName": str}}
POD = {"spec": {"containers": [CONTAINER], "volumes": [VOLUME]}}
RAYJOB = {
    "apiVersion": "ray.io/v1",
    "kind": "RayJob",
    "metadata": {"name": str},
    "spec": {
        "entrypoint": lambda text: re.match(r"rst-tune run \S+ --output /shared/", text),
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": lambda seconds: seconds > 0,
        "backoffLimit": lambda times: times >= 1,
        "runtimeEnvYAML": lambda text: yaml.safe_load(text)["env_vars"]["RAY_ADDRESS"] == "auto",
        "rayClusterSpec": {
            "rayVersion": version("ray"),
            "authOptions": {"mode": "token"},
            "headGroupSpec": {"rayStartParams": {"num-cpus": "0"}, "template": POD},
            "workerGroupSpecs": [{"groupName": str, "replicas": int, "rayStartParams": dict, "template": POD}],
        },
    },
}
COMPOSE = {
    "services": {
        "database": {
            "image": lambda name: name.startswith("postgres:"),
            "environment": {"POSTGRES_PASSWORD": lambda text: text.startswith("${POSTGRES_PASSWORD:?")},
            "volumes": [str],
            "healthcheck": {"test": list},
        },
        "mlflow": {
            "depends_on": {"database": {"condition": "service_healthy"}},
            "environment": {"MLFLOW_BACKEND_STORE_URI": lambda uri: uri.startswith("postgresql://mlflow:${POSTGRES_P")},
            "command": lambda words: words[:2] == ["mlflow", "server"] and "--serve-artifacts" in words,
            "ports": [lambda port: port.startswith("127.0.0.1:")],
            "healthcheck": {"test": list},
        },
    },
    "volumes": {"database": None, "artifacts": None},
}


def test_the_rayjob_says_what_kuberay_needs():
    assert conforms(read("rayjob.yaml"), RAYJOB) == []


def test_compose_runs_mlflow_on_postgres_behind_loopback_without_a_written_password():
    assert conforms(read("mlflow_compose.yaml"), COMPOSE) == []


def test_a_wrong_file_does_not_conform():
    wrong = read("rayjob.yaml")
    wrong["spec"]["rayClusterSpec"]["rayVersion"] = "1.0"
    del wrong["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["template"]["spec"]["volumes"]
    assert len(conforms(wrong, RAYJOB)) == 2


def test_the_runtime_environment_is_rays_and_leaves_data_out(tmp_path):
    from ray._private.runtime_env.packaging import get_uri_for_directory
    from ray.runtime_env import RuntimeEnv

    content = read("job_env.yaml")
    RuntimeEnv(**content)
    (tmp_path / "mine.yaml").write_text("name: mine")
    (tmp_path / "sub").mkdir()
    before = get_uri_for_directory(str(tmp_path), include_gitignore=True, excludes=content["excludes"])
    for name in ("data/images.bin", "output/mine/events.jsonl", "cifar10.npz", "sub/model.pt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"large")
    after = get_uri_for_directory(str(tmp_path), include_gitignore=True, excludes=content["excludes"])
    assert before == after, "the uploaded package changed with the data"
    (tmp_path / "mine.yaml").write_text("name: other")
    assert get_uri_for_directory(str(tmp_path), include_gitignore=True, excludes=content["excludes"]) != after


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_bash_and_stops_at_the_first_error(path):
    subprocess.run(["bash", "-n", str(path)], check=True)
    text = path.read_text()
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail" in text
    assert "RAY_AUTH_MODE=token" in text
    assert "--requeue" in text
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", str(path)], check=True)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_every_option_is_one_that_ray_knows(path):
    used = ray_options(path.read_text())
    assert len(used) >= 2
    assert used - known_options("start") - known_options("symmetric-run") == set()


def ray_options(text: str) -> set[str]:
    """Return the long options of the calls of ray, which end at `--` or at the end of a command."""
    joined = text.replace("\\\n", " ")
    calls = re.findall(r"ray (?:start|symmetric-run) (.*?)(?: -- | &|$)", joined, flags=re.MULTILINE)
    calls += re.findall(r'^\s*node "\$\w+" (.*)$', joined, flags=re.MULTILINE)
    return {option for call in calls for option in re.findall(r"--[a-z][a-z-]+", call)}


def known_options(command: str) -> set[str]:
    ray = Path(sys.executable).with_name("ray")
    text = subprocess.run([str(ray), command, "--help"], capture_output=True, text=True, timeout=600).stdout
    return set(re.findall(r"--[a-z][a-z-]+", text))


def test_shared_nodes_use_ports_of_the_job_that_do_not_overlap():
    text = (DEPLOY / "slurm_shared.sh").read_text()
    offsets = [int(n) for n in re.findall(r"\$\(\(base \+ (\d+)\)\)", text)]
    assert len(offsets) == len(set(offsets)) == 8
    assert max(offsets) < 200, "the next job's ports begin there"


def test_no_script_needs_what_the_project_does_not_install():
    for path in SCRIPTS:
        text = path.read_text()
        assert "--ray-client-server-port" not in text, "it needs ray[client]"
        assert "ray://" not in text


def test_every_setting_is_a_field_of_an_experiment():
    text = "\n".join(path.read_text() for path in DEPLOY.iterdir())
    settings = set(re.findall(r"\bresources\.(\w+)=", text))
    assert "gpus_per_worker" in settings
    assert settings <= set(Resources.model_fields)


def test_the_dockerfile_installs_dependencies_before_the_code_and_ends_without_root():
    lines = [line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if re.match(r"[A-Z]+ ", line)]
    words = [line.split()[0] for line in lines]
    assert words[0] == "FROM"
    assert words[-1] == "CMD"
    at = {name: next(n for n, line in enumerate(lines) if text in line) for name, text in {
        "dependencies": "pip install '.[tune,models]'", "code": "COPY rst_tune rst_tune", "user": "USER ray",
        "package": "pip install --no-deps .",
    }.items()}  # fmt: skip
    assert at["dependencies"] < at["code"] < at["package"] < at["user"]


def test_the_page_names_every_file_and_fits_two_screens():
    text = (DEPLOY / "README.md").read_text()
    assert len(text.splitlines()) <= 60
    for path in DEPLOY.iterdir():
        assert path.name == "README.md" or path.name in text
