# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The system test: a real fleet under load, through real reboots.

run.py [--full] [--page FILE] [PART...]: PART selects cases whose name has it. It needs ansible-playbook on the PATH,
with the collection, as tests/tools/system.py sees to. --page writes the figures as a page of the documentation.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

sys.dont_write_bytecode = True

import database_cases  # noqa: E402
import scene as stage  # noqa: E402
import soak  # noqa: E402
import story as stories  # noqa: E402
import trouble  # noqa: E402
import web_cases  # noqa: E402
from outcome import Outcome, tables  # noqa: E402

OUTPUT = stage.ROOT / "tests" / "output" / "system"


class Case(NamedTuple):
    name: str
    play: Callable[[stage.Scene], Outcome]
    in_short_form: bool
    # Has hosts of its own, and is played beside the case before it.
    is_beside: bool = False


CASES = [
    Case("with the collection", web_cases.with_the_collection, True),
    Case("with nothing", web_cases.with_nothing, True),
    Case("PostgreSQL switchover", database_cases.switchover, True, is_beside=True),
    Case("with the naive playbook", web_cases.with_the_naive_playbook, True),
    Case("HAProxy restarted", trouble.haproxy_restarted, True),
    Case("controller killed while drained", trouble.controller_killed("drained"), True),
    Case("controller killed while draining", trouble.controller_killed("draining"), False),
    Case("controller killed while approved", trouble.controller_killed("approved"), False),
    Case("controller killed while gone", trouble.controller_killed("gone"), False),
    Case("controller killed while restoring", trouble.controller_killed("restoring"), False),
    Case("HAProxy reloaded", trouble.haproxy_reloaded, False),
    Case("event cancelled after the drain", trouble.event_cancelled, False),
    Case("a host never comes back", trouble.host_never_comes_back, False),
    Case("controller cut off from a domain", trouble.partition, False),
    Case("the metadata service fails for a minute", trouble.metadata_service_fails, False),
    Case("hardware fails", trouble.hardware_fails, False),
    Case("two controllers", trouble.two_controllers, False),
    Case("soak", soak.soak, False),
]


def play(case: Case, scene: stage.Scene) -> Outcome:
    started = time.monotonic()
    try:
        outcome = case.play(scene)
    except stories.CaseFailed as failure:
        outcome = Outcome(case.name, None, [str(failure)])
    except Exception:
        outcome = Outcome(case.name, None, [traceback.format_exc()])
    outcome.seconds = time.monotonic() - started
    print(f"   {'ok    ' if outcome.passed else 'FAILED'} {case.name:<64} {outcome.seconds:6.1f} s", flush=True)
    for problem in outcome.problems:
        print(f"          {problem.strip()}", flush=True)
    return outcome


def play_all(cases: Sequence[Case], scene: stage.Scene) -> list[Outcome]:
    """One after the other, but what is played beside another one begins with it."""
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor() as pool:
        for i, case in enumerate(cases):
            if i > 0 and case.is_beside:
                continue
            beside = [pool.submit(play, other, scene) for other in cases[i + 1 : i + 2] if other.is_beside]
            outcomes.append(play(case, scene))
            outcomes += [other.result() for other in beside]
    return outcomes


def page(form: stage.Form, outcomes: Sequence[Outcome], command: str) -> str:
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return (
        "<!--\nCopyright (c) 2026 azops.maintenance contributors\nSPDX-License-Identifier: GPL-3.0-or-later\n-->\n\n"
        f"# What we tested\n\nWritten by `{command}` on {now}, the {form.name} form; do not edit.\n\n"
        "Six nginx hosts in three update domains behind HAProxy, and a pair of PostgreSQL hosts; Debian's packages,\n"
        "systemd, real restarts and freezes. `tests/system/` has all of it.\n\n"
        f"{tables(outcomes)}\n"
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--page", type=Path)
    parser.add_argument("parts", nargs="*", metavar="PART")
    options = parser.parse_args(arguments)
    playbook = shutil.which("ansible-playbook")
    if playbook is None:
        parser.error("ansible-playbook is not on the PATH")
    form = stage.FULL if options.full else stage.SHORT
    cases = [case for case in CASES if options.full or case.in_short_form or options.parts]
    cases = [case for case in cases if not options.parts or any(part in case.name for part in options.parts)]
    # A terminated run cleans up like an interrupted one.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    started = time.monotonic()
    with stage.set_up(form, playbook, OUTPUT) as scene:
        try:
            outcomes = play_all(cases, scene)
        finally:
            stories.keep_simulator_log(scene, OUTPUT)
    print(f"\n{tables(outcomes)}\n\n   {len(outcomes)} cases in {time.monotonic() - started:.0f} s", flush=True)
    if options.page is not None:
        command = " ".join(["tests/system/run.py", *arguments])
        options.page.write_text(page(form, outcomes, command), encoding="utf-8")
    return 0 if outcomes and all(outcome.passed for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
