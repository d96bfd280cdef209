# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The matrix: every fault, in every shape of a fleet, on the oldest and the newest ansible-core.

run.py --cores FILE [--all] [--jobs N] [--list] [PART...]: FILE says where the ansible-cores are, as
tests/tools/matrix.py writes it; PART selects cases whose name has it. Without --all each fault runs once, shapes and
cores in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import faults  # noqa: F401  # pylint: disable=unused-import  # enters its stories
from cases import FAULTS, Fault
from checker import Checker
from world import ROOT, CaseFailed, Core, Shape, World, keep

OUTPUT = ROOT / "tests" / "output" / "matrix"


class Case(NamedTuple):
    fault: Fault
    shape: Shape
    core: Core

    @property
    def name(self) -> str:
        return f"{self.fault.name} / {self.shape.name} / {self.core.series}"


class Result(NamedTuple):
    case: Case
    seconds: float
    cpu_seconds: float
    problems: list[str]
    log: Path | None


def every_case(cores: Sequence[Core]) -> list[Case]:
    return [Case(fault, shape, core) for fault in FAULTS for shape in fault.shapes for core in cores]


def short_form(cores: Sequence[Core]) -> list[Case]:
    """Each fault once, the same choice every time: all shapes and cores have their turn."""
    chosen = [fault for fault in FAULTS if fault.in_short_form]
    return [
        Case(fault, fault.short_shapes[i // len(cores) % len(fault.short_shapes)], cores[i % len(cores)])
        for i, fault in enumerate(chosen)
    ]


class Stage:
    """Plays cases below one directory of this process, and leaves nothing behind when it is ended."""

    def __init__(self) -> None:
        # A short path: the simulators' sockets are below it.
        self._directory = Path(tempfile.mkdtemp(prefix="azops-matrix-"))
        self._worlds: set[World] = set()
        self._is_ending = False
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGINT, self._end)

    def play(self, number: int, case: Case) -> Result:
        started = time.monotonic()
        directory = self._directory / str(number)
        world = None
        try:
            if self._is_ending:
                raise CaseFailed("the matrix was ended")
            directory.mkdir()
            world = World(directory, case.shape, case.core)
            self._worlds.add(world)
            return play(case, world)
        except Exception:
            return Result(case, time.monotonic() - started, 0, [traceback.format_exc()], None)
        finally:
            if world is not None:
                world.stop()
                self._worlds.discard(world)
            shutil.rmtree(directory, ignore_errors=True)

    def close(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def _end(self, number: int, _frame: FrameType | None) -> None:
        self._is_ending = True
        for world in list(self._worlds):
            world.stop()
        self.close()
        os._exit(128 + number)


def play(case: Case, world: World) -> Result:
    started = time.monotonic()
    log = None
    problems = _play(case, world)
    if problems:
        log = OUTPUT / case.name.replace(" / ", "--").replace(" ", "_").replace(",", "")
        keep(world.directory, log)
    return Result(case, time.monotonic() - started, sum(run.cpu_seconds for run in world.runs), problems, log)


def _play(case: Case, world: World) -> list[str]:
    problems = []
    try:
        case.fault.story(world)
    except CaseFailed as failure:
        problems.append(str(failure))
    except Exception:
        problems.append(traceback.format_exc())
    return problems + Checker(world).broken()


def report(result: Result) -> None:
    word = "ok    " if not result.problems else "FAILED"
    print(f"   {word} {result.case.name:<72} {result.seconds:6.1f} s {result.cpu_seconds:6.1f} s of CPU", flush=True)
    for problem in result.problems:
        print(f"          {problem.strip()}")
    if result.log is not None:
        print(f"          kept in {result.log.relative_to(ROOT)}", flush=True)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=Path, required=True)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--jobs", type=int, default=5)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("parts", nargs="*", metavar="PART")
    options = parser.parse_args(arguments)
    cores = [Core(*core) for core in json.loads(options.cores.read_text(encoding="utf-8"))]
    cases = every_case(cores) if options.all else short_form(cores)
    cases = [case for case in cases if not options.parts or any(part in case.name for part in options.parts)]
    if options.list:
        print("\n".join(case.name for case in cases))
        return 0
    cases.sort(key=lambda case: not case.fault.is_slow)
    started = time.monotonic()
    results = []
    stage = Stage()
    with ThreadPoolExecutor(max_workers=options.jobs) as pool:
        for done in as_completed([pool.submit(stage.play, number, case) for number, case in enumerate(cases)]):
            results.append(done.result())
            report(results[-1])
    stage.close()
    failed = [result for result in results if result.problems]
    seconds = f"{time.monotonic() - started:.0f} s, {sum(result.cpu_seconds for result in results):.0f} s of CPU"
    print(f"   {len(results)} cases: {len(results) - len(failed)} passed, {len(failed)} failed, in {seconds}")
    for result in failed:
        print(f"   failed: {result.case.name}")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
