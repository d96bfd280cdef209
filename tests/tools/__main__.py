# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""python3 tests/tools STAGE...: what the Makefile's targets run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

import environments
import hosts
import integration
import lint
import matrix
import sanity
import scripts
import shell
import steps
import system
import tarball
import unit

STAGES: dict[str, Callable[[], bool]] = {
    "lint": lint.run,
    "unit": unit.run,
    "sanity": sanity.run,
    "packaging": tarball.run,
    "integration": integration.run,
    "matrix": matrix.run,
    "matrix_all": matrix.run_all,
    "hosts": hosts.run,
    "system": system.run,
    "system-test": system.run_full,
    "environment": shell.run,
}

# These talk to the user themselves.
SCRIPTS = {"demo": "tests/demo/run.sh", "bench": "tests/bench/run.sh"}


def main(names: list[str]) -> int:
    if len(names) == 1 and names[0] in SCRIPTS:
        return scripts.run(SCRIPTS[names[0]], local=names[0] == "demo")
    unknown = [name for name in names if name not in STAGES]
    if unknown or not names:
        print(
            f"usage: python3 tests/tools STAGE..., with STAGE one of {', '.join([*STAGES, *SCRIPTS])}", file=sys.stderr
        )
        return 2
    results = [_run_stage("environments", partial(environments.make_for, names))] if len(names) > 1 else []
    results += [_run_stage(name, STAGES[name]) for name in names]
    if len(results) > 1:
        print(f"\n{steps.summary(results)}")
    return 0 if all(result.passed for result in results) else 1


def _run_stage(name: str, stage: Callable[[], bool]) -> steps.Result:
    print(f"== {name}", flush=True)
    started = time.monotonic()
    try:
        passed = stage()
    except steps.SetupError as error:
        print(error)
        passed = False
    seconds = time.monotonic() - started
    print(f"== {name}: {'ok' if passed else 'FAILED'} in {seconds:.0f} s", flush=True)
    return steps.Result(name, passed, seconds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
