"""A plain function that is run in slices: in a thread of its own, which runs only while its caller waits for it."""

import threading
from collections.abc import Callable
from typing import Any

from rst_tune.errors import InputError

SECONDS_TO_END = 10.0


class Stopped(BaseException):
    """Raised inside of the function where it is stopped, so that its `with` and `finally` blocks end properly."""


class Coroutine:
    """Runs `work(pause)` until it calls `pause`, then on from there at each `resume`.

    >>> coroutine = Coroutine(lambda pause: [pause(), 7][1])
    >>> coroutine.resume(), coroutine.resume(), coroutine.result
    (True, False, 7)
    """

    def __init__(self, work: Callable[[Callable[[], None]], Any]) -> None:
        self.result: Any = None
        self._error: BaseException | None = None
        self._stopping = False
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        # A daemon: a function that does not end when it is stopped must not keep the process alive.
        self._thread = threading.Thread(target=self._run, args=(work,), name="trial", daemon=True)

    def resume(self) -> bool:
        """Run on until the function pauses (True) or ends (False); its error is raised here."""
        if self._thread.ident is None:
            self._thread.start()
        self._go.release()
        self._done.acquire()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return self._alive

    def close(self) -> None:
        """Stop the function where it pauses. One that goes on all the same is left behind."""
        if self._thread.ident is None or not self._thread.is_alive():
            return
        self._stopping = True
        self._go.release()
        self._thread.join(SECONDS_TO_END)

    def _run(self, work: Callable[[Callable[[], None]], Any]) -> None:
        self._go.acquire()
        self._alive = True
        try:
            self.result = work(self._pause)
        except Stopped:
            pass
        except SystemExit as error:
            self._error = InputError(
                f"a training function must return, but it called sys.exit({error.code!r}): raise an error instead"
            )
        except BaseException as error:  # noqa: BLE001  it is raised again where the caller waits
            self._error = error
        self._alive = False
        self._done.release()

    def _pause(self) -> None:
        self._done.release()
        self._go.acquire()
        if self._stopping:
            raise Stopped
