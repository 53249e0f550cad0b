"""Stands between a child process and the kernel: each write and sync waits for an answer.

By seccomp's user notifications, so that no tool is needed: Linux 5.5 or later, any user. The
child asks for it itself, and can't take it back. Fork only from a process without threads.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import platform
import select
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

# What changes a file, or makes a change last, and what opens one; by number, on each machine.
_NUMBERS: Final = {
    "x86_64": {
        "write": 1, "pwrite64": 18, "fsync": 74, "fdatasync": 75, "ftruncate": 77, "unlink": 87,
        "openat": 257, "unlinkat": 263, "fallocate": 285,
    },
    "aarch64": {
        "write": 64, "pwrite64": 68, "fsync": 82, "fdatasync": 83, "ftruncate": 46,
        "openat": 56, "unlinkat": 35, "fallocate": 47,
    },
}  # fmt: skip
_SECCOMP: Final = {"x86_64": 317, "aarch64": 277}
_BY_PATH: Final = {"openat": 1, "unlinkat": 1, "unlink": 0}

_PR_SET_NO_NEW_PRIVS: Final = 38
_SET_MODE_FILTER, _NEW_LISTENER = 1, 8
_LOAD_NUMBER, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ASK = 0x7FFF0000, 0x7FC00000
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE: Final = 1

SYNCS: Final = frozenset({"fsync", "fdatasync"})
KILL: Final = -1


@dataclass(frozen=True, slots=True)
class Call:
    """What the child is about to do, to which file."""

    name: str
    path: Path

    def __str__(self) -> str:
        return f"{self.name} of {self.path.name}"


# 0 lets it happen, an error's number makes it fail, KILL ends the child before it.
Answer = Callable[[Call], int]
# Gets what the child says, and answers.
Hear = Callable[[Any], Any]


class Line:
    """How the child talks to its watcher: one word, one answer."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def ask(self, word: Any) -> Any:
        self._end.send(json.dumps(word).encode())
        return json.loads(self._end.recv(65_536))


def watched(act: Callable[[Line], None], *, answer: Answer, hear: Hear) -> int:
    """Run `act` in a child that is watched; its exit code, or minus the signal that ended it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _be_watched(theirs, act)
    theirs.close()
    with ours:
        _, (listener, *_), *_ = socket.recv_fds(ours, 1, 1)
        try:
            _attend(pid, listener, ours, answer=answer, hear=hear)
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            raise
        finally:
            # What it asked and nobody answers fails: so it ends in any case.
            os.close(listener)
            _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _be_watched(end: socket.socket, act: Callable[[Line], None]) -> NoReturn:
    code = 1
    try:
        listener = _listener()
        socket.send_fds(end, [b"."], [listener])
        os.close(listener)
        act(Line(end))
        code = 0
    except BaseException:  # noqa: BLE001  # the parent's own blocks must not be run here
        traceback.print_exc()
    finally:
        os._exit(code)


def _listener() -> int:
    """Have this process's calls asked about from now on; where they can be heard."""
    machine = platform.machine()
    numbers = _NUMBERS[machine].values()
    filters = [(_LOAD_NUMBER, 0, 0, 0)]
    for number in numbers:
        filters += [(_JUMP_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ASK)]
    filters.append((_RETURN, 0, 0, _ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in filters))
    program = struct.pack("@HP", len(filters), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    listener: int = libc.syscall(_SECCOMP[machine], _SET_MODE_FILTER, _NEW_LISTENER, program)
    if listener < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"calls can't be watched here: {os.strerror(number)}")
    return listener


def _attend(pid: int, listener: int, end: socket.socket, *, answer: Answer, hear: Hear) -> None:
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(end, select.POLLIN)
    while True:
        ready = dict(poll.poll())
        if ready.get(listener, 0) & select.POLLIN:
            if not _answer_call(pid, listener, answer):
                return
        elif end.fileno() in ready:
            word = end.recv(65_536)
            if not word:
                return
            end.send(json.dumps(hear(json.loads(word))).encode())


def _answer_call(pid: int, listener: int, answer: Answer) -> bool:
    """Whether the child goes on."""
    asked = bytearray(80)
    try:
        fcntl.ioctl(listener, _RECEIVE, asked)
    except FileNotFoundError:  # It died meanwhile.
        return True
    id, thread, _, number, _, _, *words = struct.unpack("=QIIiIQ6Q", asked)
    name = next(name for name, n in _NUMBERS[platform.machine()].items() if n == number)
    path = _path(thread, name, words)
    verdict = 0 if path is None else answer(Call(name, path))
    if verdict == KILL:
        os.kill(pid, signal.SIGKILL)
        return False
    flags = 0 if verdict else _CONTINUE
    with suppress(FileNotFoundError):
        fcntl.ioctl(listener, _SEND, struct.pack("=QqiI", id, 0, -verdict, flags))
    return True


def _path(thread: int, name: str, words: list[int]) -> Path | None:
    """The file of a call; None of what is no file."""
    try:
        if name not in _BY_PATH:
            link = Path(f"/proc/{thread}/fd/{words[0]}").readlink()
            text = str(link).removesuffix(" (deleted)")
        else:
            text = _text_at(thread, words[_BY_PATH[name]])
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESRCH, errno.EIO):
            raise
        return None
    return Path(text) if text.startswith("/") else None


def _text_at(thread: int, address: int) -> str:
    """A path in the memory of a thread; read page by page, since the next one may not be there."""
    text = b""
    with Path(f"/proc/{thread}/mem").open("rb", buffering=0) as memory:
        while b"\0" not in text and len(text) < 4096:
            memory.seek(address + len(text))
            text += memory.read(4096 - (address + len(text)) % 4096)
    return text.partition(b"\0")[0].decode("utf-8", "replace")
