r"""What runs inside a container around a command: small scripts for any POSIX shell, using its built-ins only.

`WRAPPER` is the first program of a session (the engines start each ``exec`` in a session of its own). It reports on
standard error when the command begins and how it ended, under a token that no command can guess. So three things are
known for certain that an engine's exit code does not tell apart: whether the command ran at all, what its own exit
code was, and that it has ended although something it left behind still holds its output.

`KILLER` runs as a second ``exec`` and ends everything that belongs to a command: its session and group, the children of
those, and whoever carries the token in the environment it inherited (a process that made itself a session of its own
and whose parent is gone). It looks again until there is none, so that a process that forks meanwhile does not escape.

Rejected: ``timeout`` and ``setsid`` of coreutils and util-linux, which small images lack; a file with the process
number, for which there may be no writable place; the engine's own ``exec`` ending, which leaves the process running.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from attrs import define

SHELL: Final = "/bin/sh"
MARK: Final = "PROCTOR_EXEC"
"""The variable by which all that a command starts can be found."""
LONGEST_PREFACE: Final = 65_536  # bytes of what an engine may say before a command begins
LONGEST_CODE: Final = 6  # digits of an exit code, with room to spare

NO_FOLDER: Final = "no such working folder"
WRAPPER: Final = (
    'exec 3>&2 2>/dev/null; echo "$0 began $$" >&3; '
    'if cd -- "$1" || cd "$1"; then shift; "$@" 2>&3 3>&-; r=$?; '
    f'else echo "$0: $1: {NO_FOLDER}" >&3; r=126; fi; '
    'echo "$0 ended $r" >&3; exit $r'
)
"""``$0`` is the token, ``$1`` the working folder, the rest the command."""

KILLER: Final = r"""exec 2>/dev/null
s=$1 t=$2 n=0 k=0
while :; do
  v=
  for d in /proc/[0-9]*; do
    p=${d#/proc/}
    case $p in 1|$$) continue;; esac
    l=; while read -r a; do l="$l $a"; done < $d/stat
    [ -n "$l" ] || continue
    set -- ${l##*) }
    case $1 in Z|X) continue;; esac
    if [ "$p" = "$s" ] || [ "$3" = "$s" ] || [ "$4" = "$s" ]; then v="$v $p"; continue; fi
    case "$v " in *" $2 "*) v="$v $p"; continue;; esac
    while read -r a || [ -n "$a" ]; do
      case $a in *"$t"*) v="$v $p"; break;; esac
    done < $d/environ
  done
  [ -z "$v" ] && exit 0
  [ $n -ge 60 ] && exit 1
  if [ $n -eq 0 ] && [ $k -eq 0 ]; then kill -TERM $v; kill -CONT $v; elif [ $n -ge 10 ]; then kill -KILL $v; fi
  if sleep 0.1; then n=$((n+1)); elif sleep 1; then n=$((n+10)); else k=$((k+1)); fi
  if [ $k -ge 40 ]; then k=0 n=$((n+1)); fi
done
"""
"""``$1`` is the wrapper's process number (0: unknown), ``$2`` the token. Ends with 0 when nothing is left.

It counts tenths of a second: SIGTERM at once, SIGKILL from the tenth on, given up at the sixtieth. Where there is no
``sleep``, forty looks stand for one of them.
"""

KEEP_ALIVE: Final = 'trap "exit 0" TERM INT; while :; do sleep 86400 & wait $! || read -r x; done'
"""A first process that does nothing, reaps what is orphaned, and ends when asked. Where there is no ``sleep`` it reads
its standard input, which the engine holds open (``--interactive``) and never writes to."""

READ: Final = (
    '[ -d "$1" ] && exit 91; [ -e "$1" ] && ! [ -f "$1" ] && exit 92; '
    '[ -e "$1" ] && ! [ -r "$1" ] && exit 93; exec cat -- "$1"'
)
WRITE: Final = (
    '[ -d "$1" ] && exit 91; [ -d "$2" ] || mkdir -p -- "$2" || exit 94; '
    '[ -e "$1" ] && ! [ -w "$1" ] && exit 93; exec cat > "$1"'
)
IS_FOLDER, IS_SPECIAL, IS_FORBIDDEN, NOT_MADE = 91, 92, 93, 94
"""Exit codes of the two scripts."""


@define(eq=False)
class Announcements:
    """Finds the wrapper's two lines in a stream of standard error and takes them out.

    Attributes:
        token: under which they are said.
        pid: the wrapper's process number, which is its session's; None: it has not begun.
        code: the command's exit code; None: it has not ended, or was ended together with the wrapper.
        held: what was taken and not yet given back: before the beginning what the engine wrote, later what may be a
            part of the second line.
    """

    token: str
    pid: int | None = None
    code: int | None = None
    held: bytes = b""

    def see(self, data: bytes) -> bytes:
        """Take the next part of the stream, of any length; what of it is the command's own."""
        text = self.held + data
        if self.pid is None:
            began = re.search(rf"{self.token} began (\d+)\n".encode(), text)
            if began is None:
                self.held = text[-LONGEST_PREFACE:]
                return b""
            self.pid, text = int(began[1]), text[began.end() :]
        if ended := re.search(rf"{self.token} ended (\d+)\n".encode(), text):
            self.code, self.held = int(ended[1]), b""
            return text[: ended.start()] + text[ended.end() :]
        keep = self._unfinished(text)
        self.held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def rest(self) -> bytes:
        """What was held back for a line that did not come."""
        held, self.held = self.held, b""
        return held

    def _unfinished(self, text: bytes) -> int:
        """How many bytes at the end of `text` may be the beginning of the second line."""
        line = f"{self.token} ended ".encode()
        begun = text.rfind(line)
        if begun >= 0 and text[begun + len(line) :].isdigit() and len(text) - begun < len(line) + LONGEST_CODE:
            return len(text) - begun
        return next((n for n in range(min(len(line), len(text)), 0, -1) if text.endswith(line[:n])), 0)


def wrapped(command: Sequence[str], *, token: str, folder: str) -> list[str]:
    """The arguments of an ``exec`` that runs a command in a folder under the wrapper."""
    return [SHELL, "-c", WRAPPER, token, folder, *command]


def killer(pid: int | None, token: str) -> list[str]:
    """The arguments of an ``exec`` that ends what belongs to a command."""
    return [SHELL, "-c", KILLER, "proctor-kill", str(pid or 0), token]


def marked(env: Mapping[str, str] | None, token: str) -> dict[str, str]:
    """A command's variables with the token among them."""
    return {**(env or {}), MARK: token}


__all__ = [
    "IS_FOLDER",
    "IS_FORBIDDEN",
    "IS_SPECIAL",
    "KEEP_ALIVE",
    "MARK",
    "NOT_MADE",
    "NO_FOLDER",
    "READ",
    "SHELL",
    "WRITE",
    "Announcements",
    "killer",
    "marked",
    "wrapped",
]
