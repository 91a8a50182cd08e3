"""The Engine's client against the session's real Engine: a unit test program, run where an Engine is."""
import os
import pathlib
import re
import subprocess

import engine as e

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/test/unit/test_engine_live"


def test_the_client_against_a_real_engine():
    env = {**os.environ, "TREE": str(ROOT), "PLIMSOLL_BUILD": str(ROOT / "build/test"), e.GIVEN: e.shared().path}
    p = subprocess.run([PROGRAM], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    text = p.stdout.decode("utf-8", "replace")
    assert p.returncode == 0 and "SKIPPED" not in text, text[-8000:]
    assert int(re.search(r"\[  PASSED  \] (\d+) test", text).group(1)) >= 8
