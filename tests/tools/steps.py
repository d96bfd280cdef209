# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a command as one step: one line when it is well, all of its output when it is not."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from project import ROOT

# Seconds. The slowest step is a cold sanity run of about one minute.
LONGEST = 600


class SetupError(Exception):
    """What a stage needs cannot be had on this machine; the text says what."""


class Result(NamedTuple):
    name: str
    passed: bool
    seconds: float
    output: str = ""
    note: str = ""


def run(
    name: str,
    command: Sequence[str | Path],
    env: Mapping[str, str],
    cwd: Path = ROOT,
    log: Path | None = None,
    longest: int = LONGEST,
) -> Result:
    """Run one command and report it."""
    result = capture(name, command, env, cwd, log, longest)
    report(result)
    return result


def run_all(jobs: Sequence[Callable[[], Result]], per_processor: int = 1) -> list[Result]:
    """Do some jobs at a time for each processor of the machine, and report each when it is done.

    Jobs that wait half of their time leave room for a second one per processor. The longest come first.
    """
    results = []
    with ThreadPoolExecutor(max_workers=per_processor * (os.cpu_count() or 1)) as pool:
        for done in as_completed([pool.submit(job) for job in jobs]):
            results.append(done.result())
            report(results[-1])
    return results


def pytest(name: str, python: Path, folders: Sequence[str], env: Mapping[str, str]) -> Result:
    """Run pytest without reporting it. That nothing was tested is a failure."""
    result = capture(name, [python, "-m", "pytest", "-q", *folders], env)
    counts = re.findall(r"^=* ?(\d+ passed.*?) in [\d.]+s", result.output, re.MULTILINE)
    return result._replace(passed=result.passed and bool(counts), note=counts[-1] if counts else "")


def capture(
    name: str,
    command: Sequence[str | Path],
    env: Mapping[str, str],
    cwd: Path = ROOT,
    log: Path | None = None,
    longest: int = LONGEST,
) -> Result:
    """Run one command to its end, or until it has taken too long."""
    started = time.monotonic()
    # A file, not a pipe: what the command leaves running in the background would keep a pipe open.
    with tempfile.TemporaryFile() as stream:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(timeout=longest)
            end = ""
        except subprocess.TimeoutExpired:
            end = f"\nstopped: not done after {longest} s\n"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        stream.seek(0)
        output = stream.read().decode("utf-8", "replace") + end
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(output, encoding="utf-8")
    return Result(name, process.returncode == 0, time.monotonic() - started, output)


def report(result: Result) -> None:
    word = "ok    " if result.passed else "FAILED"
    print(f"   {word} {result.name:<64} {result.seconds:6.1f} s  {result.note}".rstrip(), flush=True)
    if not result.passed:
        print(result.output.rstrip("\n"), flush=True)


def summary(results: Sequence[Result]) -> str:
    width = max(len(result.name) for result in results)
    lines = [
        f"{result.name:<{width}}  {'ok    ' if result.passed else 'FAILED'}  {result.seconds:7.1f} s"
        for result in results
    ]
    total = sum(result.seconds for result in results)
    return "\n".join([*lines, f"{'total':<{width}}          {total:7.1f} s"])
