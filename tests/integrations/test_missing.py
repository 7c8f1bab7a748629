"""An integration without its package names what to install; the library itself imports none of them."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("extra", ["lightning", "transformers"])
def test_a_missing_package_is_named_with_its_extra(extra):
    code = (
        f"import sys; sys.modules[{extra!r}] = None\n"
        f"try: import rst_tune.integrations.{extra}\n"
        "except ImportError as error: print(error)\n"
        "print(sorted({'lightning', 'transformers', 'accelerate'} & {m for m, v in sys.modules.items() if v}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert f"pip install 'rst_tune[{extra}]'" in done.stdout
    assert done.stdout.endswith("[]\n")
