# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a simulated host does for a living: python3 workload.py DIRECTORY HOST drain|verify|restore|health.

It is out of service while the file out/HOST is there. Every time it goes out or comes back is appended to a record,
with the machine's monotonic clock. A file orders/HOST.VERB lets it fail, hang, or wait until that file is gone.
"""

import json
import os
import sys
import time


def main(directory: str, host: str, verb: str) -> int:
    flag = os.path.join(directory, "out", host)
    note(directory, host, verb, "begins")
    order = obey(os.path.join(directory, "orders", host + "." + verb))
    if order == "fail":
        note(directory, host, verb, "failed")
        print("the workload was told to fail")
        return 1
    if verb == "drain":
        with open(flag, "w", encoding="utf-8"):
            pass
    elif verb == "restore" and os.path.exists(flag):
        os.unlink(flag)
    elif verb == "verify" and not os.path.exists(flag):
        note(directory, host, verb, "failed")
        return 1
    note(directory, host, verb, "done")
    return 0


def obey(path: str) -> str:
    """What is ordered, once there is nothing more to wait for."""
    while True:
        try:
            with open(path, encoding="utf-8") as order:
                word = order.read()
        except FileNotFoundError:
            return ""
        if word not in ("wait", "hang"):
            return word
        time.sleep(0.05)


def note(directory: str, host: str, verb: str, outcome: str) -> None:
    line = {"mono": time.monotonic(), "host": host, "verb": verb, "outcome": outcome}
    record = os.open(os.path.join(directory, "workload.jsonl"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(record, (json.dumps(line) + "\n").encode("utf-8"))
    finally:
        os.close(record)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
