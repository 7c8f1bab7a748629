"""An integration without its package names what to install; the library itself imports none of them."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(("name", "extra"), [("lightning",) * 2, ("transformers",) * 2, ("ray", "tune")])
def test_a_missing_package_is_named_with_its_extra(name, extra):
    code = (
        f"import sys; sys.modules[{name!r}] = None\n"
        f"try: import rst_tune.integrations.{name}\n"
        "except ImportError as error: print(error)\n"
        "print(sorted({'lightning', 'transformers', 'accelerate'} & {m for m, v in sys.modules.items() if v}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert f"pip install 'rst_tune[{extra}]'" in done.stdout
    assert done.stdout.endswith("[]\n")
