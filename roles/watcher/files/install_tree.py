# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes a tree of Python packages, given as JSON on standard input, and puts it in place of another at once."""

import compileall
import json
import os
import shutil
import sys


def main(live: str) -> int:
    new, old = live + ".new", live + ".old"
    files = json.load(sys.stdin)
    os.umask(0o022)
    for leftover in (new, old):
        shutil.rmtree(leftover, ignore_errors=True)
    for name, content in files.items():
        path = os.path.join(new, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8", newline="") as target:
            target.write(content)
    for package in sorted(os.listdir(new)):
        if not compileall.compile_dir(os.path.join(new, package), ddir=os.path.join(live, package), quiet=1):
            return 1
    os.sync()
    if os.path.lexists(live):
        os.rename(live, old)
    os.rename(new, live)
    shutil.rmtree(old, ignore_errors=True)
    return 0


sys.exit(main(sys.argv[1]))
