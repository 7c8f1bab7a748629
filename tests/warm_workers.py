"""Ray workers as forks of one process that has imported torch and the package, which takes seconds of CPU time.

`Cluster(head_node_args={"setup_worker_path": warm_workers.serve(), ...})`: Ray then runs this file for each worker
instead of its own script. It hands its arguments, environment and output over to the process that has the imports, and
lives as long as the worker does.
"""

import array
import json
import os
import socket
import sys

SOCKET = "RST_WARM_WORKERS"
_servers: list[object] = []
# Not Ray: it reads the environment of its worker when it is imported.
MODULES = (
    "torch._dynamo",
    "pandas",
    "pyarrow.fs",
    "sklearn.datasets",
    "rst_tune.training.workload",
    "rst_tune.tuning.space",
)


def _start() -> int:
    """Ask for a worker and wait for its end. Imports nothing that takes time."""
    if not any(word.startswith("--language=PYTHON") for word in sys.argv):
        raise SystemExit("only workers in Python are forked")
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect(os.environ[SOCKET])
        request = json.dumps({"argv": sys.argv[1:], "environment": dict(os.environ), "cwd": os.getcwd()}).encode()
        streams = array.array("i", [0, 1, 2])
        channel.sendmsg([len(request).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
        channel.sendall(request)
        return int(channel.recv(16) or b"1")


def serve() -> str:
    """Start the process that forks, once per session; return the path of this file for `setup_worker_path`.

    It ends with this process: then the pipe to its input is closed.
    """
    import subprocess
    import tempfile

    if SOCKET not in os.environ:
        path = os.path.join(tempfile.mkdtemp(prefix="rst-warm-"), "socket")
        command, pipe = [sys.executable, __file__, "--serve", path], subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe)  # referenced below, so that the pipe stays open
        assert process.stdout is not None
        assert process.stdout.readline(), "the process that forks workers does not start"
        _servers.append(process)
        os.environ[SOCKET] = path
    return __file__


def _listen(path: str) -> None:
    import importlib
    import select
    import shutil
    import signal

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended workers leave no zombies
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in MODULES:
        importlib.import_module(name)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(64)
        print("listening", flush=True)
        while server in select.select([server, sys.stdin], [], [])[0]:
            channel, _ = server.accept()
            if os.fork() == 0:
                server.close()
                _become_worker(channel)
            channel.close()
    shutil.rmtree(os.path.dirname(path))


def _become_worker(channel: socket.socket) -> None:
    """Become the worker that was asked for; it ends when whoever asked is killed."""
    import runpy
    import signal
    import threading

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    head, ancillary, _, _ = channel.recvmsg(8, socket.CMSG_SPACE(3 * array.array("i").itemsize))
    streams = array.array("i")
    streams.frombytes(ancillary[0][2])
    size, text = int.from_bytes(head, "big"), b""
    while len(text) < size:
        text += channel.recv(size - len(text))
    request = json.loads(text)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])

    def follow() -> None:
        channel.recv(1)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=follow, daemon=True).start()
    dropped = ("--language=", "--serialized-runtime-env-context=")
    sys.argv = [word for word in request["argv"] if not word.startswith(dropped)]
    sys.path[:0] = [part for part in request["environment"].get("PYTHONPATH", "").split(os.pathsep) if part]
    code = 0
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        channel.send(str(code).encode())
        os._exit(code)


if __name__ == "__main__":
    sys.exit(_listen(sys.argv[2]) if sys.argv[1] == "--serve" else _start())
