# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Small JSON files that survive a kill at any instant, in a directory that only their owner can write."""

import contextlib
import errno
import fcntl
import json
import os
import stat
import time
from typing import Any, Dict, Iterator, Optional

from ._errors import JournalError

LARGEST_FILE = 1024 * 1024
LOCK_PATIENCE = 10.0
STALE_AFTER = 3600.0
TEMPORARY = ".tmp"


def check_directory(directory: str) -> bool:
    """Whether the directory is there. Refuses one that somebody else could have written to."""
    if not os.path.isabs(directory):
        raise JournalError("{0} is not an absolute path.".format(directory), "Give journal_dir from the root on.")
    try:
        found = os.lstat(directory)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise JournalError("Cannot look at {0}: {1}.".format(directory, error.strerror)) from None
    if not stat.S_ISDIR(found.st_mode):
        raise JournalError("{0} is not a directory.".format(directory))
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise JournalError(
            "{0} belongs to user {1} with mode {2:04o}, so that what is in it cannot be trusted by user {3}.".format(
                directory, found.st_uid, stat.S_IMODE(found.st_mode), os.geteuid()
            )
        )
    return True


@contextlib.contextmanager
def locked(directory: str) -> Iterator[None]:
    """Make the directory if need be, and hold its lock: one writer at a time."""
    try:
        if not check_directory(directory):
            os.makedirs(directory, mode=0o700, exist_ok=True)
            check_directory(directory)
        lock = os.open(os.path.join(directory, ".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise JournalError("Cannot write to {0}: {1}.".format(directory, error.strerror)) from None
    try:
        _lock(lock, directory)
        yield
    finally:
        os.close(lock)


@contextlib.contextmanager
def locked_file(path: str) -> Iterator[None]:
    """Hold a lock that is a file of its own. Raises OSError if it cannot be made."""
    lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _lock(lock, path)
        yield
    finally:
        os.close(lock)


def _lock(lock: int, directory: str) -> None:
    give_up_at = time.monotonic() + LOCK_PATIENCE
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES) or time.monotonic() > give_up_at:
                raise JournalError(
                    "{0} has been locked by another process for {1:.0f} s.".format(directory, LOCK_PATIENCE),
                    "Find it with: fuser {0}".format(
                        os.path.join(directory, ".lock") if os.path.isdir(directory) else directory
                    ),
                ) from None
        time.sleep(0.02)


def read_json(path: str, dir_fd: Optional[int] = None) -> Dict[str, Any]:
    """The object in a file. Raises ValueError if it is damaged, OSError if it cannot be read."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=dir_fd)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("not a regular file")
        with os.fdopen(handle, "rb", closefd=False) as source:
            content = source.read(LARGEST_FILE + 1)
    finally:
        os.close(handle)
    if len(content) > LARGEST_FILE:
        raise ValueError("larger than {0} bytes".format(LARGEST_FILE))
    try:
        value = json.loads(content.decode("utf-8"))
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def write_json(path: str, value: Dict[str, Any], mode: int = 0o600) -> None:
    """Replace a file as a whole: after a kill there is the old one or the new one, on disk."""
    content = (json.dumps(value, indent=1, sort_keys=True) + "\n").encode("ascii")
    if len(content) > LARGEST_FILE:
        raise JournalError("Cannot write {0}: it would be larger than {1} bytes.".format(path, LARGEST_FILE), "")
    directory = os.path.dirname(path)
    temporary = "{0}.{1}{2}".format(path, os.getpid(), TEMPORARY)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(handle, "wb") as target:
                os.fchmod(handle, mode)
                target.write(content)
                target.flush()
                os.fsync(target.fileno())
            os.rename(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        sync_directory(directory)
    except OSError as error:
        raise JournalError("Cannot write {0}: {1}.".format(path, error.strerror)) from None


def check_space(directory: str) -> None:
    """Raises JournalError if a file could not be written there now."""
    probe = os.path.join(directory, "probe")
    write_json(probe, {})
    remove(probe)


def remove(path: str) -> None:
    """Remove a file, if it is there, for good."""
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        sync_directory(os.path.dirname(path))
    except OSError as error:
        raise JournalError("Cannot remove {0}: {1}.".format(path, error.strerror)) from None


def sync_directory(directory: str) -> None:
    """Make renames and removals in a directory last through a power loss."""
    handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_stale_temporaries(directory: str) -> None:
    """Remove what killed writers left."""
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        with contextlib.suppress(OSError):
            if name.endswith(TEMPORARY) and time.time() - os.lstat(path).st_mtime > STALE_AFTER:
                os.unlink(path)
