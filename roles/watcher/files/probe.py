# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Says, as JSON, what the role has to know of a VM: one program instead of a dozen tasks. It changes nothing."""

import grp
import hashlib
import json
import os
import pwd
import re
import ssl
import stat
import subprocess
import sys
from typing import Any, Dict, List

SEND = """
import socket
try:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"", ("127.0.0.1", 9))
except PermissionError:
    print("enforced")
"""


def systemd_version() -> int:
    """0 where systemd does not run the machine."""
    if not os.path.isdir("/run/systemd/system"):
        return 0
    said = subprocess.check_output(["systemctl", "--version"], universal_newlines=True)  # noqa: S607
    return int(re.findall(r"^systemd (\d+)", said)[0])


def enforces_addresses(python: str) -> bool:
    """Send a datagram to the VM itself from a unit that may send nothing: systemd keeps its word or it does not."""
    command = ["systemd-run", "--quiet", "--wait", "--pipe", "--collect"]
    properties = ["--property=User=nobody", "--property=IPAddressDeny=any"]
    done = subprocess.run(
        [*command, *properties, python, "-I", "-c", SEND],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return done.stdout.strip() == b"enforced"


def is_safe(path: str) -> bool:
    """Whether only root can change this program, and a unit without access to home directories can run it."""
    found = os.stat(path)
    homes = ("/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/")  # noqa: S108 (names, not files)
    writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return found.st_uid == 0 and not writable and not os.path.realpath(path).startswith(homes)


def tree(top: str) -> Dict[str, str]:
    """Everything below a directory: mode, owner, and for all but what Python compiled the content."""
    found = {}
    for folder, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            content = ""
            if stat.S_ISREG(status.st_mode) and not name.endswith(".pyc"):
                with open(path, "rb") as source:
                    content = hashlib.sha256(source.read()).hexdigest()
            words = [oct(status.st_mode), str(status.st_uid), content]
            found[os.path.relpath(path, top)] = " ".join(words).strip()
    return found


def wrong_directories(wanted: List[Dict[str, str]]) -> List[Dict[str, str]]:
    return [item for item in wanted if directory(item["path"]) != [item["owner"], item["owner"], item["mode"]]]


def directory(path: str) -> List[str]:
    try:
        found = os.lstat(path)
        names = [pwd.getpwuid(found.st_uid).pw_name, grp.getgrgid(found.st_gid).gr_name]
    except (OSError, KeyError):
        return []
    return [*names, "{0:04o}".format(stat.S_IMODE(found.st_mode))] if stat.S_ISDIR(found.st_mode) else []


def content(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as source:
            return json.load(source)
    except (OSError, ValueError):
        return {}


def main() -> None:
    asked = json.load(sys.stdin)
    systemd = systemd_version()
    answer = {
        "python": ".".join(str(number) for number in sys.version_info[:2]),
        "python_is_safe": is_safe(asked["python"]),
        "ssl": ssl.OPENSSL_VERSION,
        "tag": sys.implementation.cache_tag,
        "systemd": systemd,
        "enforces_addresses": bool(systemd and asked["limits_addresses"] and enforces_addresses(asked["python"])),
        "missing": [path for path in asked["provided"] if not os.path.exists(path)],
        "present": [path for path in asked["leftovers"] if os.path.lexists(path)],
        "wrong_directories": wrong_directories(asked["directories"]),
        "tree": tree(asked["tree"]),
        "made": content(asked["made"]),
    }
    json.dump(answer, sys.stdout)


main()
