# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command line of the watcher."""

import argparse
import json
import os
import signal
import socket
import sys
import time
from typing import Any, Dict, List, Optional

from azops_core._errors import MaintenanceError
from azops_core._hold import held_by
from azops_core._safe_files import read_json

from . import VERSION
from .config import STATUSES, Paths, check_config, load_config, load_secrets, unknown_hook_directories
from .hooks import RootUnit, find_hooks, parse_request, run_hook

EXIT_FAILED, EXIT_WRONG, EXIT_NO_ANSWER = 1, 2, 75
ROW = "{0:<38}{1:<11}{2:<28}{3:<22}{4}"


def main(arguments: Optional[List[str]] = None) -> int:
    options = _parser().parse_args(arguments)
    paths = Paths(options.root.rstrip("/"))
    try:
        return int(options.do(paths, options))
    except MaintenanceError as error:
        print("azops-watcher: {0}".format(error), file=sys.stderr)
        return EXIT_WRONG
    except OSError as error:
        print("azops-watcher: {0}".format(error), file=sys.stderr)
        return EXIT_FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="azops-watcher", description="Watch this VM's Azure Scheduled Events.")
    parser.add_argument("--version", action="version", version=VERSION)
    parser.add_argument("--root", default="", help=argparse.SUPPRESS)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.required = True
    watch = commands.add_parser("watch", help="look once, or go on looking; systemd starts this")
    watch.add_argument("how", choices=["once", "run"])
    watch.set_defaults(do=_watch)
    status = commands.add_parser("status", help="show what the watcher knows")
    status.add_argument("--json", action="store_true", help="as JSON")
    status.add_argument("--check-config", metavar="FILE", help="only check a configuration file")
    status.set_defaults(do=_status)
    test = commands.add_parser("test-hooks", help="run the hooks with an invented event, as root")
    test.add_argument("--phase", choices=STATUSES, default=STATUSES[0])
    test.set_defaults(do=_test_hooks)
    hooks = commands.add_parser("run-hooks", help="run the hooks that were asked for; systemd starts this as root")
    hooks.set_defaults(do=_run_hooks)
    fact = commands.add_parser("fact", help="print the public state as a local fact of Ansible")
    fact.set_defaults(do=_fact)
    return parser


def _watch(paths: Paths, options: argparse.Namespace) -> int:
    from .watcher import Watcher

    os.umask(0o022)
    config, secrets = load_config(paths), load_secrets(paths)
    if options.how == "once":
        return 0 if Watcher(paths, config, secrets, "timer").once() else EXIT_NO_ANSWER
    stopped: List[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _frame: stopped.append(received))
    watcher = Watcher(paths, config, secrets, "service", sleep=lambda seconds: _sleep_unless(stopped, seconds))
    _tell_systemd("READY=1")
    watcher.run(lambda: not stopped, lambda: _tell_systemd("WATCHDOG=1"))
    _tell_systemd("STOPPING=1")
    return 0


def _sleep_unless(stopped: List[int], seconds: float) -> None:
    if not stopped:
        time.sleep(seconds)


def _tell_systemd(words: str) -> None:
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
        notify.connect("\0" + address[1:] if address.startswith("@") else address)
        notify.sendall(words.encode("ascii"))


def _run_hooks(paths: Paths, _options: argparse.Namespace) -> int:
    os.umask(0o022)
    RootUnit(paths, load_config(paths)).run_all()
    return 0


def _test_hooks(paths: Paths, options: argparse.Namespace) -> int:
    """Show which hooks would run, and run them with an event that says it is a test."""
    event: Dict[str, Any] = {
        "event_id": "00000000-0000-0000-0000-000000000000",
        "event_type": "Reboot",
        "event_status": "Scheduled",
        "description": "A test of the hooks: nothing is going to happen.",
        "resources": [socket.gethostname()],
        "not_before": None,
        "test": True,
    }
    request = parse_request({"phase": options.phase, "event": event, "vm": socket.gethostname()})
    problems: List[str] = []
    hooks = find_hooks(os.path.join(paths.hooks, options.phase + ".d"), problems)
    config = load_config(paths)
    for hook in hooks:
        run = run_hook(hook, request, config.hook_timeout)
        print("{0}: {1} ({2} s)".format(hook, run["problem"] or "ok", run["seconds"]))
        problems += [run["problem"]] if run["problem"] else []
    if not hooks and not problems:
        print("There are no hooks in {0}/{1}.d.".format(paths.hooks, options.phase))
    for problem in problems:
        print("problem: {0}".format(problem), file=sys.stderr)
    return EXIT_FAILED if problems else 0


def _fact(paths: Paths, _options: argparse.Namespace) -> int:
    print(json.dumps(_public_state(paths)))
    return 0


def _status(paths: Paths, options: argparse.Namespace) -> int:
    if options.check_config:
        check_config(options.check_config)
        return 0
    state = dict(_public_state(paths), held_by=held_by(paths.hold))
    if options.json:
        print(json.dumps(state, indent=1, sort_keys=True))
    else:
        print("\n".join(_table(state, unknown_hook_directories(paths))))
    return 0


def _public_state(paths: Paths) -> Dict[str, Any]:
    """What the watcher published. Its user wrote it, so it is read as data and never through a link."""
    try:
        return read_json(paths.public_state)
    except FileNotFoundError:
        return {"version": VERSION, "last_success": None, "last_error": "the watcher has not run yet", "events": []}
    except ValueError as error:
        return {"version": VERSION, "last_success": None, "last_error": "damaged: {0}".format(error), "events": []}


def _table(state: Dict[str, Any], strange: List[str]) -> List[str]:
    age = "never" if not state["last_success"] else "{0:.0f} s ago".format(time.time() - state["last_success"])
    lines = [
        "azops-watcher {0}, {1} mode, on {2}".format(state["version"], state.get("mode", "?"), state.get("vm") or "?"),
        "last good poll: {0}{1}".format(age, ", since then: " + state["last_error"] if state["last_error"] else ""),
    ]
    if state.get("held_by"):
        lines.append("HELD by {0}: no hooks are run and nothing is approved".format(state["held_by"]))
    lines += ["no status runs what is in {0}".format(name) for name in strange]
    if not state["events"]:
        return [*lines, "no event hits this VM"]
    lines += ["", ROW.format("event", "type", "status", "not before", "also hits")]
    for event in state["events"]:
        others = [name for name in event["resources"] if name.lower() != str(state["vm"]).lower()]
        marks = [word for word in ("drained", "approved") if event.get(word)]
        lines.append(
            ROW.format(
                _plain(event["event_id"]),
                _plain(event["event_type"]),
                "/".join([event["status"], *marks]),
                event["not_before"] or "-",
                _plain(", ".join(others)) or "-",
            )
        )
    return lines


def _plain(text: str) -> str:
    """Text from the service without anything that a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
