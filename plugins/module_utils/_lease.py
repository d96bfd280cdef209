# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lease: one controller at a time may act on a scope. Each VM of the scope keeps its own vote."""

import contextlib
import os
from datetime import datetime, timedelta
from typing import Any, Callable, Dict, Iterator, NamedTuple, Optional

from ._document import format_time, parse_time
from ._errors import InputError
from ._journal import utc_now
from ._safe_files import check_directory, locked, read_json, remove, write_json

LONGEST_SECONDS = 7 * 24 * 3600


class Holder(NamedTuple):
    """Who holds a lease: one run of one controller."""

    run_id: str
    controller: str
    pid: int


class Lease(NamedTuple):
    """A lease that has not expired by the VM's own clock."""

    scope: str
    holder: Holder
    expires_at: str

    def as_dict(self) -> Dict[str, Any]:
        return dict(self.holder._asdict(), scope=self.scope, expires_at=self.expires_at)


class LeaseBox:
    """The lease kept on one VM, beside its journal: one file, since a VM is in one scope."""

    def __init__(self, journal_directory: str, now: Callable[[], datetime] = utc_now, dry_run: bool = False) -> None:
        self._directory = journal_directory
        self._path = os.path.join(journal_directory, "lease")
        self._now = now
        self._dry_run = dry_run

    def current(self) -> Optional[Lease]:
        """The lease that is in force. One that cannot be understood counts as expired."""
        if not check_directory(self._directory):
            return None
        try:
            value = read_json(self._path)
            lease = Lease(
                str(value["scope"]),
                Holder(str(value["run_id"]), str(value["controller"]), int(value["pid"])),
                str(value["expires_at"]),
            )
            return lease if parse_time(lease.expires_at) > self._now() else None
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None

    def acquire(self, scope: str, holder: Holder, seconds: int, takeover_from: Optional[str] = None) -> Lease:
        """Take or renew the lease, unless another run holds it; either way, the lease that is then in force."""
        if not 0 < seconds <= LONGEST_SECONDS:
            raise InputError("A lease lasts from 1 to {0} seconds, not {1}.".format(LONGEST_SECONDS, seconds))
        with self._writing():
            current = self.current()
            if current is not None and current.holder.run_id not in (holder.run_id, takeover_from):
                return current
            lease = Lease(scope, holder, format_time(self._now() + timedelta(seconds=seconds)) or "")
            if not self._dry_run:
                write_json(self._path, lease.as_dict())
            return lease

    def release(self, run_id: str) -> Optional[Lease]:
        """Give back the lease if this run holds it; what is in force afterwards."""
        with self._writing():
            current = self.current()
            if current is None or current.holder.run_id != run_id:
                return current
            if not self._dry_run:
                remove(self._path)
            return None

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        if self._dry_run:
            yield
        else:
            with locked(self._directory):
                yield
