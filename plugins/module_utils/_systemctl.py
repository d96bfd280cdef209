# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""systemctl, by its arguments and never through a shell."""

import os
import re
from typing import Dict, List, NamedTuple, Sequence

from ._document import quote
from ._errors import DrainError, InputError
from ._processes import Outcome, run_program

SUFFIXES = ("service", "socket", "timer", "path", "target", "mount", "automount", "swap", "slice", "scope")
NAME = re.compile(r"[A-Za-z0-9:_\\][A-Za-z0-9:_.\\@-]*")
PROPERTIES = ("Id", "LoadState", "ActiveState", "SubState", "DropInPaths", "TriggeredBy")
STOPPED = ("inactive", "failed")
STOPPING = STOPPED + ("deactivating", "maintenance")
LOOK_FOR = 20.0


class Unit(NamedTuple):
    """What systemd says about a unit."""

    name: str
    load_state: str
    active_state: str
    sub_state: str
    drop_ins: Sequence[str]
    triggered_by: Sequence[str]

    @property
    def is_stopped(self) -> bool:
        return self.active_state in STOPPED

    @property
    def runs(self) -> bool:
        """Whether somebody wants it to run, also if it is only starting or waiting to be started again."""
        return self.active_state not in STOPPING

    @property
    def is_masked(self) -> bool:
        return self.load_state == "masked"

    @property
    def words(self) -> str:
        return "{0} ({1})".format(self.active_state, self.sub_state)


def unit_name(name: str) -> str:
    """The full name of a unit that the user gave."""
    full = name if name.rpartition(".")[2] in SUFFIXES else name + ".service"
    if not NAME.fullmatch(full):
        raise InputError("{0} is not the name of a unit.".format(quote(name)), "Give names such as nginx.service.")
    return full


def show(name: str) -> Unit:
    """What systemd says about a unit now. Raises DrainError if it says nothing."""
    outcome = run(["show", "--property=" + ",".join(PROPERTIES), "--", name], LOOK_FOR)
    values: Dict[str, str] = {}
    for line in outcome.output.splitlines():
        key, equals, value = line.partition("=")
        if equals and key in PROPERTIES:
            values[key] = value
    if outcome.status != 0 or "ActiveState" not in values:
        raise DrainError(
            "systemctl does not say how {0} is: {1}.".format(name, quote(outcome.output.strip())),
            "Look at the VM with: systemctl status {0}".format(name),
        )
    return Unit(
        values.get("Id") or name,
        values.get("LoadState", ""),
        values["ActiveState"],
        values.get("SubState", ""),
        tuple(values.get("DropInPaths", "").split()),
        tuple(values.get("TriggeredBy", "").split()),
    )


def run(arguments: List[str], timeout: float) -> Outcome:
    """Call systemctl. A job that was not over in time goes on in systemd."""
    environment = dict(os.environ, LC_ALL="C", SYSTEMD_COLORS="0", SYSTEMD_PAGER="")
    try:
        return run_program(
            ["systemctl", "--no-ask-password", "--no-pager"] + arguments, timeout, environment=environment
        )
    except OSError as error:
        raise DrainError(
            "Cannot run systemctl: {0}.".format(error.strerror), "The systemd backend needs a VM that systemd runs."
        ) from None
