# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Programs with a time limit."""

import contextlib
import os
import signal
import subprocess
import tempfile
from typing import Dict, List, NamedTuple, Optional

LONGEST_OUTPUT = 20000


class Outcome(NamedTuple):
    """How a program ended; without a status it did not within its time."""

    status: Optional[int]
    output: str

    @property
    def timed_out(self) -> bool:
        return self.status is None


def run_program(
    arguments: List[str],
    timeout: float,
    directory: Optional[str] = None,
    environment: Optional[Dict[str, str]] = None,
) -> Outcome:
    """Run a program, without a shell, and end it with all that it started when its time is over. Its output goes to a
    file, so that what stays in the background blocks nothing; the end of it is kept. Raises OSError if it cannot be
    run."""
    with tempfile.TemporaryFile() as output:
        # run_command of AnsibleModule cannot end a program, with all that it started, after a time.
        process = subprocess.Popen(  # pylint: disable=ansible-bad-function
            arguments,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        status: Optional[int] = None
        try:
            status = process.wait(timeout=max(0.1, timeout))
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(max(0, output.seek(0, os.SEEK_END) - LONGEST_OUTPUT))
        return Outcome(status, output.read().decode("utf-8", "replace"))
