# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hooks: the user's programs, run by root in a unit without network, asked for by the watcher through files."""

import contextlib
import hashlib
import json
import os
import re
import signal
import stat
import subprocess
import time
from typing import Any, Dict, List, NamedTuple, Optional

from azops_core._audit import log_line
from azops_core._document import clean_value, format_time, name_key
from azops_core._errors import MaintenanceError
from azops_core._hold import held_by
from azops_core._journal import Journal, Subject, utc_now
from azops_core._lease import Holder, LeaseBox
from azops_core._safe_files import read_json, write_json

from . import ACTOR
from .config import GONE, SCHEDULED, STATUSES, Config, Paths

APPROVED = "approved"
REQUESTED_PHASES = (*STATUSES, APPROVED)
DONE, FAILED, HELD, LEFT_ALONE = "done", "failed", "held", "left_alone"
HOOK_NAME = re.compile(r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*$", re.ASCII)
LEFTOVER_NAME = re.compile(r"(~|\.bak|\.orig|\.rpm(new|save|orig)|\.dpkg-[a-z]+)$")
BACKEND = "watcher-hooks"
KEEP_RESULTS = 400


class Request(NamedTuple):
    """What the watcher wants done as root. All of it comes from the network and is only ever data."""

    phase: str
    event_id: str
    event_type: str
    vm: str
    resources: List[str]
    not_before: Optional[str]
    event: Dict[str, Any]
    act: bool
    still_hit_by: List[str]

    @property
    def key(self) -> str:
        return request_key(self.event_id, self.phase)


class Result(NamedTuple):
    """What came of a request."""

    outcome: str
    reason: Optional[str] = None
    hooks: List[Dict[str, Any]] = []


def request_key(event_id: str, phase: str) -> str:
    """The id of one change of one event, the same on every VM."""
    return "{0}:{1}".format(name_key(event_id), phase)


def file_for(directory: str, key: str) -> str:
    return os.path.join(directory, hashlib.sha256(key.encode("utf-8")).hexdigest()[:40] + ".json")


def ask(paths: Paths, phase: str, event: Dict[str, Any], vm: str, act: bool, still_hit_by: List[str]) -> None:
    """Leave a request for the root unit; a path unit starts it."""
    os.makedirs(paths.requests, mode=0o700, exist_ok=True)
    value = {"phase": phase, "event": event, "vm": vm, "act": act, "still_hit_by": still_hit_by}
    write_json(file_for(paths.requests, request_key(str(event["event_id"]), phase)), value)


def answer(paths: Paths, event_id: str, phase: str) -> Optional[Result]:
    """What the root unit answered, None while it has not."""
    try:
        value = read_json(file_for(paths.results, request_key(event_id, phase)))
        return Result(str(value["outcome"]), value["reason"], list(value["hooks"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Result(FAILED, "the answer of the root unit cannot be read: {0}".format(error))


def is_waiting(paths: Paths, event_id: str, phase: str) -> bool:
    return os.path.exists(file_for(paths.requests, request_key(event_id, phase)))


class Mailbox:
    """The requests as root sees them. The directory is the watcher's own, so nothing in it is followed or trusted."""

    def __init__(self, directory: str) -> None:
        self._directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._directory)

    def names(self) -> List[str]:
        """What is waiting, oldest first."""
        found = []
        for name in os.listdir(self._directory):
            with contextlib.suppress(OSError):
                modified = os.stat(name, dir_fd=self._directory, follow_symlinks=False).st_mtime
                found.append((modified, name))
        return [name for _modified, name in sorted(found) if name.endswith(".json")]

    def read(self, name: str) -> Request:
        return parse_request(read_json(name, dir_fd=self._directory))

    def remove(self, name: str) -> None:
        """Remove a request; what cannot be removed, such as a directory, is renamed so that it waits no longer."""
        with contextlib.suppress(FileNotFoundError):
            try:
                os.unlink(name, dir_fd=self._directory)
            except OSError:
                aside = "{0}.refused-{1}".format(name, time.time())
                os.rename(name, aside, src_dir_fd=self._directory, dst_dir_fd=self._directory)


class RootUnit:
    """Carries out the watcher's requests. Runs as root, without network."""

    def __init__(self, paths: Paths, config: Config) -> None:
        self._paths = paths
        self._config = config
        self._journal = Journal(paths.journal)
        self._leases = LeaseBox(paths.journal)

    def run_all(self) -> int:
        """Carry out every request, oldest first; how many there were."""
        os.makedirs(self._paths.results, mode=0o755, exist_ok=True)
        try:
            mailbox = Mailbox(self._paths.requests)
        except FileNotFoundError:
            return 0
        except OSError as error:
            log_line("The directory of requests is no directory", {"error": str(error)}, identifier=ACTOR)
            _remove(self._paths.requests)
            return 0
        try:
            done = 0
            waiting = mailbox.names()
            while waiting:
                for name in waiting:
                    self._carry_out(mailbox, name)
                    done += 1
                waiting = mailbox.names()
        finally:
            mailbox.close()
        self._forget_old_results()
        return done

    def _carry_out(self, mailbox: Mailbox, name: str) -> None:
        try:
            request = mailbox.read(name)
        except (OSError, ValueError) as error:
            log_line("A request of the watcher is not understood", {"error": str(error)}, identifier=ACTOR)
            mailbox.remove(name)
            return
        try:
            result = self._result_of(request)
        except (MaintenanceError, OSError) as error:
            result = Result(FAILED, str(error))
        log_line(
            "Hooks for event {0}, {1}: {2}".format(request.event_id, request.phase, result.outcome),
            {"event_id": request.event_id, "phase": request.phase, "outcome": result.outcome, "reason": result.reason},
            identifier=ACTOR,
        )
        finished = dict(result._asdict(), finished_at=format_time(utc_now()), key=request.key)
        write_json(file_for(self._paths.results, request.key), finished, mode=0o644)
        mailbox.remove(name)

    def _result_of(self, request: Request) -> Result:
        hold = held_by(self._paths.hold)
        if hold is not None and request.phase != APPROVED:
            return Result(HELD, hold)
        if request.phase == APPROVED:
            self._journal.note_approval(_subject(request), ACTOR)
            return Result(DONE)
        if request.phase == GONE:
            return self._restore(request)
        if request.phase == SCHEDULED and request.act:
            return self._drain(request)
        if self._config.act_alone and not self._is_ours(request.event_id, request.vm):
            return Result(DONE, "nothing was drained for it here")
        return self._run_hooks(request)

    def _is_ours(self, event_id: str, vm: str) -> bool:
        """Whether this watcher has drained the VM for the event, and not restored it."""
        entry = self._journal.find(event_id, vm)
        return entry is not None and entry.is_open and entry.steps[0].actor == ACTOR

    def _drain(self, request: Request) -> Result:
        entry = self._journal.find(request.event_id, request.vm)
        if entry is not None and entry.is_open and entry.steps[0].actor != ACTOR:
            return Result(LEFT_ALONE, "{0} has it in the journal".format(entry.steps[0].actor))
        problems: List[str] = []
        directory = os.path.join(self._paths.hooks, SCHEDULED + ".d")
        hooks = find_hooks(directory, problems)
        if problems or not hooks:
            return Result(
                FAILED, "; ".join(problems) or "there are no hooks in {0} that could drain it".format(directory)
            )
        scope = self._config.scope or request.vm
        holder = Holder(_run_id(request), request.vm, os.getpid())
        lease = self._leases.acquire(scope, holder, self._config.hook_timeout + self._config.margin + 60)
        if lease.holder.run_id != holder.run_id:
            return Result(LEFT_ALONE, "{0} on {1} has the lease".format(lease.holder.run_id, lease.holder.controller))
        self._journal.begin(_subject(request), ACTOR)
        names = [os.path.basename(hook) for hook in hooks]
        self._journal.record_change(request.event_id, request.vm, BACKEND, {"hooks": names})
        result = self._run_hooks(request)
        phase = "drained" if result.outcome == DONE else "drain_failed"
        self._journal.enter_phase(request.event_id, request.vm, phase, ACTOR)
        return result

    def _restore(self, request: Request) -> Result:
        if not self._is_ours(request.event_id, request.vm):
            if self._config.act_alone:
                return Result(DONE, "nothing was drained for it here")
            return self._run_hooks(request)
        others = [event_id for event_id in request.still_hit_by if self._is_ours(event_id, request.vm)]
        if others:
            return Result(LEFT_ALONE, "the VM is still drained for event {0}".format(others[0]))
        self._journal.enter_phase(request.event_id, request.vm, "restoring", ACTOR)
        result = self._run_hooks(request)
        if result.outcome != DONE:
            self._journal.enter_phase(request.event_id, request.vm, "restore_failed", ACTOR)
            return result
        entry = self._journal.find(request.event_id, request.vm)
        for change in entry.open_changes if entry is not None else ():
            self._journal.undo_change(request.event_id, request.vm, change.number)
        self._journal.close(request.event_id, request.vm, "restored", ACTOR)
        self._leases.release(_run_id(request))
        return result

    def _run_hooks(self, request: Request) -> Result:
        """In order; a drain stops at the first failure, a restore brings back what it can."""
        runs: List[Dict[str, Any]] = []
        problems: List[str] = []
        give_up_at = time.monotonic() + self._config.hook_timeout
        for hook in find_hooks(os.path.join(self._paths.hooks, request.phase + ".d"), problems):
            if problems and request.phase != GONE:
                break
            run = run_hook(hook, request, max(1.0, give_up_at - time.monotonic()))
            runs.append(run)
            if run["status"] != 0:
                problems.append("{0}: {1}".format(hook, run["problem"]))
        return Result(FAILED if problems else DONE, "; ".join(problems) or None, runs)

    def _forget_old_results(self) -> None:
        paths = [os.path.join(self._paths.results, name) for name in _names_in(self._paths.results)]
        for path in sorted(paths, key=os.path.getmtime, reverse=True)[KEEP_RESULTS:]:
            _remove(path)


def parse_request(value: Dict[str, Any]) -> Request:
    """Raises ValueError for anything that the watcher does not write."""
    event = value.get("event")
    if not isinstance(event, dict) or value.get("phase") not in REQUESTED_PHASES:
        raise ValueError("not a request")
    texts = [event.get("event_id"), event.get("event_type"), value.get("vm")]
    resources, not_before = event.get("resources"), event.get("not_before")
    if clean_value(value) != value:
        raise ValueError("text that cannot be written")
    if not all(isinstance(text, str) and text for text in texts):
        raise ValueError("an event without id, type or VM")
    if not _is_list_of_names(resources) or not _is_list_of_names(value.get("still_hit_by", [])):
        raise ValueError("names that are no list of names")
    if not_before is not None and not isinstance(not_before, str):
        raise ValueError("an event whose not_before is no text")
    return Request(
        phase=str(value["phase"]),
        event_id=str(texts[0]),
        event_type=str(texts[1]),
        vm=str(texts[2]),
        resources=list(resources or []),
        not_before=not_before,
        event=event,
        act=value.get("act") is True,
        still_hit_by=value.get("still_hit_by", []),
    )


def _is_list_of_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def find_hooks(directory: str, problems: List[str]) -> List[str]:
    """The programs to run, in order. One that somebody else could have written is a problem, not a hook."""
    hooks: List[str] = []
    names = _names_in(directory)
    if names and not all(_check_owner(place, problems) for place in (os.path.dirname(directory), directory)):
        return hooks
    for name in names:
        path = os.path.join(directory, name)
        if LEFTOVER_NAME.search(name) or name.startswith("."):
            continue
        if not HOOK_NAME.match(name):
            problems.append("{0} has a name that no hook may have".format(path))
        elif _check_owner(path, problems) and _check_program(path, problems):
            hooks.append(path)
    return hooks


def run_hook(path: str, request: Request, timeout: float) -> Dict[str, Any]:
    """Run one program: the event as JSON on its standard input, never through a shell."""
    started = time.monotonic()
    event = json.dumps(dict(request.event, phase=request.phase, vm=request.vm)).encode("ascii")
    problem = None
    status: Optional[int] = None
    try:
        process = subprocess.Popen(
            [path], stdin=subprocess.PIPE, env=_environment(request), start_new_session=True, close_fds=True, cwd="/"
        )
    except OSError as error:
        return {"hook": path, "status": -1, "seconds": 0, "problem": "cannot be started: {0}".format(error.strerror)}
    try:
        process.communicate(event, timeout)
        status = process.returncode
        problem = None if status == 0 else "ended with status {0}".format(status)
    except subprocess.TimeoutExpired:
        status, problem = -1, "was ended after {0:.0f} s".format(timeout)
    finally:
        _end_group(process)
    return {"hook": path, "status": status, "seconds": round(time.monotonic() - started, 1), "problem": problem}


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """End the hook and everything that it started and left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _environment(request: Request) -> Dict[str, str]:
    values = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "AZOPS_PHASE": request.phase,
        "AZOPS_EVENT_ID": request.event_id,
        "AZOPS_EVENT_TYPE": request.event_type,
        "AZOPS_NOT_BEFORE": request.not_before or "",
        "AZOPS_VM": request.vm,
    }
    return {name: re.sub(r"[^\x20-\x7e]", "?", value) for name, value in values.items()}


def _check_owner(path: str, problems: List[str]) -> bool:
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        problems.append("{0} is a link".format(path))
    elif found.st_uid not in (0, os.geteuid()):
        problems.append("{0} belongs to user {1}, not to root".format(path, found.st_uid))
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        problems.append("{0} can be written by others".format(path))
    else:
        return True
    return False


def _check_program(path: str, problems: List[str]) -> bool:
    mode = os.lstat(path).st_mode
    if stat.S_ISREG(mode) and mode & stat.S_IXUSR:
        return True
    problems.append("{0} is not a program that can be run (chmod 0755)".format(path))
    return False


def _subject(request: Request) -> Subject:
    return Subject(request.event_id, request.vm, request.event_type, tuple(request.resources), request.not_before)


def _run_id(request: Request) -> str:
    """One lease for all events of the VM: they are handled together."""
    return "{0}:{1}".format(ACTOR, name_key(request.vm))


def _names_in(directory: str) -> List[str]:
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
