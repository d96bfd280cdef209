# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the watcher of a VM shows to everybody on it."""

from typing import Any, Dict, NamedTuple, Optional

from ._document import clean_value
from ._safe_files import read_json

DEFAULT_FILE = "/run/azops-watcher/state.json"


class WatcherState(NamedTuple):
    """Which watcher runs on a VM, and when it last read the metadata service."""

    version: str
    mode: str
    seconds_since_poll: Optional[int]
    last_error: Optional[str]


def read_watcher_state(path: str, now: float) -> Optional[Dict[str, Any]]:
    """None where no watcher has written its state since the VM was started, or it cannot be understood."""
    try:
        state = clean_value(read_json(path))
        success = state["last_success"]
        since = None if success is None else max(0, int(now - float(success)))
        error = state["last_error"]
        found = WatcherState(str(state["version"]), str(state["mode"]), since, None if error is None else str(error))
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return dict(found._asdict())
