# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hold: a file on a VM that stops every drain and every approval."""

from typing import Optional

DEFAULT_FILE = "/etc/azops-maintenance/hold"


def held_by(path: str = DEFAULT_FILE) -> Optional[str]:
    """Why the VM is held; None if it is not. A file that is there but cannot be read holds as well."""
    try:
        with open(path, encoding="utf-8", errors="replace") as hold:
            words = " ".join(hold.read(1000).split())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return "{0} ({1})".format(path, error.strerror)
    return "{0} ({1})".format(path, words) if words else path
