"""What a local cluster looks like to everybody else on the machine."""

import json
import os
import socket
import subprocess
import sys
import time

import pytest

from rst_tune.errors import InputError
from rst_tune.tuning.backend.cluster import CONNECT_SECONDS, connected

SEEN = """
import json, os, subprocess, sys
from pathlib import Path
from rst_tune.tuning.backend.cluster import connected
with connected(None, log=Path(sys.argv[1])):
    import psutil, ray
    code, address = "import ray, sys; ray.init(address=sys.argv[1])", ray.get_runtime_context().gcs_address
    env = {**os.environ, "RAY_AUTH_TOKEN": 64 * "0"}
    stranger = subprocess.run([sys.executable, "-c", code, address], env=env, capture_output=True, text=True)
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    listening = {c.laddr.ip for p in family for c in p.net_connections("tcp") if c.status == "LISTEN"}
    print(json.dumps({"mode": os.environ["RAY_AUTH_MODE"], "token": len(os.environ["RAY_AUTH_TOKEN"]),
                      "stranger": [stranger.returncode, stranger.stderr],
                      "nodes": [n["NodeManagerAddress"] for n in ray.nodes()], "listening": sorted(listening)}))
"""


@pytest.mark.slow
def test_a_local_cluster_asks_for_a_token_and_listens_on_loopback_alone(tmp_path):
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    command = [sys.executable, "-c", SEEN, str(tmp_path / "log.txt")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["mode"] == "token"
    assert seen["token"] == 64
    assert seen["stranger"][0] == 1
    assert "token" in seen["stranger"][1].lower()
    assert seen["nodes"] == ["127.0.0.1"]
    assert {ip.removeprefix("::ffff:") for ip in seen["listening"]} <= {"127.0.0.1", "::1"}
    assert seen["listening"]


def test_an_address_at_which_nothing_listens_is_refused_within_seconds(tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        free = closed.getsockname()[1]
    for address in (f"127.0.0.1:{free}", "no.such.host.invalid:6379", "no address"):
        begun = time.monotonic()
        with pytest.raises(InputError, match=r"no Ray cluster answers at .*correct --address"):
            connected(address, log=tmp_path / "log.txt").__enter__()
        assert time.monotonic() - begun < 6 * CONNECT_SECONDS, "Ray alone tries for a quarter of an hour"
