"""`text_editor`: view and edit files of the sample's sandbox, with the commands that models are trained on."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Literal

from attrs import define, field

from proctor.errors import ToolError, ToolParsingError
from proctor.runtime import current_sample
from proctor.sandbox import SandboxEnvironment
from proctor.sandbox import sandbox as environment_of
from proctor.tool.definition import Tool, tool

Command = Literal["view", "create", "str_replace", "insert", "undo_edit"]

TIMEOUT: Final = 180  # seconds, as in Inspect
UNDONE: Final = 10  # edits of one file that can be undone, as in Inspect
AROUND: Final = 4  # lines shown before and after an edit
LEVELS: Final = 2  # of a folder that are listed
MISSING: Final = "There is no file or folder {path!r}."


@define(eq=False)
class Files:
    """The files of an environment, read and written as one of its users.

    Attributes:
        user: None: as the environment does by itself.
        earlier: what files held before their last edits, None where there was no file.
    """

    environment: SandboxEnvironment
    user: str | None
    timeout: int
    earlier: dict[str, deque[str | None]] = field(factory=dict)

    async def view(self, path: str, lines: Sequence[int] | None) -> str:
        """A file with numbered lines, or what is in a folder."""
        try:
            text = await self._read(path)
        except IsADirectoryError:
            if lines is not None:
                raise ToolParsingError(f"view_range is only for files; {path!r} is a folder.") from None
            return await self._listed(path)
        whole = text.split("\n")
        if lines is None:
            return numbered(whole, 1)
        first, last = _range(lines, len(whole))
        return numbered(whole[first - 1 : last], first)

    async def create(self, path: str, text: str) -> str:
        """A new file."""
        try:
            await self._read(path)
        except FileNotFoundError:
            await self._write(path, text, before=None)
            return f"The file {path} was created."
        except UnicodeDecodeError:
            pass
        raise ToolError(f"There is a file {path!r} already, which create does not replace.")

    async def replace(self, path: str, old: str, new: str) -> str:
        """A file with one text in the place of another, which it must have exactly once."""
        text = await self._read(path)
        if not old:
            raise ToolParsingError("old_str must not be empty.")
        places = _places(text, old)
        if not places:
            raise ToolError(f"Nothing was replaced: old_str is not in {path}, letter by letter.\nold_str: {old}")
        if len(places) > 1:
            listed = ", ".join(str(line) for line in dict.fromkeys(text.count("\n", 0, at) + 1 for at in places))
            raise ToolError(f"Nothing was replaced: old_str is in {path} {len(places)} times, on lines {listed}.")
        edited = text[: places[0]] + new + text[places[0] + len(old) :]
        await self._write(path, edited, before=text)
        return _shown(path, edited, text.count("\n", 0, places[0]), new.count("\n"))

    async def insert(self, path: str, line: int, text: str) -> str:
        """A file with a text after one of its lines; line 0 is its beginning."""
        before = await self._read(path)
        lines = before.split("\n")
        if not 0 <= line <= len(lines):
            raise ToolParsingError(f"insert_line must be from 0 to {len(lines)}, the lines of {path}, not {line}.")
        edited = "\n".join([*lines[:line], *text.split("\n"), *lines[line:]])
        await self._write(path, edited, before=before)
        return _shown(path, edited, line, text.count("\n"))

    async def undo(self, path: str) -> str:
        """A file as it was before its last edit."""
        history = self.earlier.get(path)
        if not history:
            raise ToolError(f"There is no edit of {path} that could be undone.")
        text = history[-1]
        if text is None:
            await self._run(["rm", "-f", "--", path])
            history.pop()
            return f"The file {path} was removed again."
        await self._put(path, text)
        history.pop()
        return f"The last edit of {path} was undone.\n{numbered(text.split(chr(10)), 1)}"

    async def _listed(self, path: str) -> str:
        found = await self._run(
            ["find", path, "-mindepth", "1", "-maxdepth", str(LEVELS), "-name", ".*", "-prune", "-o", "-print"]
        )
        names = [name for name in sorted(found.splitlines()) if name != path]
        return "\n".join([f"{path}: files and folders, {LEVELS} levels deep, without hidden ones", *names])

    async def _read(self, path: str) -> str:
        if self.user is None:
            try:
                return await self.environment.read_file(path)
            except FileNotFoundError:
                raise FileNotFoundError(MISSING.format(path=path)) from None
        if (await self.environment.exec(["test", "-d", path], user=self.user, timeout=self.timeout)).success:
            raise IsADirectoryError(21, "Is a directory", path)
        if not (await self.environment.exec(["test", "-e", path], user=self.user, timeout=self.timeout)).success:
            raise FileNotFoundError(MISSING.format(path=path))
        return await self._run(["cat", "--", path])

    async def _write(self, path: str, text: str, *, before: str | None) -> None:
        await self._put(path, text)
        self.earlier.setdefault(path, deque(maxlen=UNDONE)).append(before)

    async def _put(self, path: str, text: str) -> None:
        if self.user is None:
            await self.environment.write_file(path, text)
        else:
            await self._run(["sh", "-c", 'mkdir -p -- "$(dirname -- "$0")" && cat > "$0"', path], input=text)

    async def _run(self, command: list[str], input: str | None = None) -> str:
        result = await self.environment.exec(command, input=input, user=self.user, timeout=self.timeout)
        if not result.success:
            raise ToolError(result.stderr.strip() or f"{command[0]} failed with exit code {result.returncode}")
        return result.stdout


@tool
def text_editor(timeout: int | None = None, user: str | None = None) -> Tool:
    """A tool that views and edits files in the sandbox.

    Args:
        timeout: seconds that a command may take, default 180.
        user: who reads and writes.
    """
    seconds = timeout or TIMEOUT

    async def execute(
        command: Command,
        path: str,
        file_text: str | None = None,
        insert_line: int | None = None,
        insert_text: str | None = None,
        new_str: str | None = None,
        old_str: str | None = None,
        view_range: list[int] | None = None,
    ) -> str:
        """View, create and edit text files.

        Args:
            command: What to do. undo_edit goes back at most 10 edits of a file.
            path: The file, such as `/repo/file.py` or `../repo`; for view also a folder.
            file_text: With create: the content of the new file.
            insert_line: With insert: the number of the line after which the text goes; 0 for the beginning.
            insert_text: With insert: the text.
            new_str: With str_replace: what comes in its place; without it the old text is only removed.
            old_str: With str_replace: the text to replace, which must be in the file exactly once.
            view_range: With view of a file: the first and the last line to show, as in [11, 12], counted from 1; -1 as
                the last for the end of the file.
        """
        files = _files(user, seconds)
        match command:
            case "view":
                return await files.view(path, view_range)
            case "create":
                return await files.create(path, _needed(file_text, "create", "file_text"))
            case "str_replace":
                return await files.replace(path, _needed(old_str, "str_replace", "old_str"), new_str or "")
            case "insert":
                if insert_line is None:
                    raise ToolParsingError("The command insert needs insert_line.")
                text = insert_text if insert_text is not None else new_str
                return await files.insert(path, insert_line, _needed(text, "insert", "insert_text"))
            case "undo_edit":
                return await files.undo(path)

    return execute


def _files(user: str | None, timeout: int) -> Files:
    """The files of the running sample; what can be undone is kept with it."""
    sample = current_sample()
    files = Files(environment_of(), user, timeout)
    if sample is not None:
        files.earlier = sample.kept.setdefault(("text_editor", user), files.earlier)
    return files


def _needed(value: str | None, command: str, name: str) -> str:
    if value is None:
        raise ToolParsingError(f"The command {command} needs {name}.")
    return value


def numbered(lines: Sequence[str], first: int) -> str:
    """Lines with their numbers, as ``cat -n`` gives them."""
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines, first))


def _range(lines: Sequence[int], count: int) -> tuple[int, int]:
    if len(lines) != 2:
        raise ToolParsingError("view_range needs two numbers, the first and the last line.")
    first, last = lines[0], count if lines[1] == -1 else lines[1]
    if not 1 <= first <= count or last < first:
        raise ToolParsingError(f"view_range {list(lines)} does not fit: the file has the lines 1 to {count}.")
    return first, min(last, count)


def _places(text: str, part: str) -> list[int]:
    found, place = [], text.find(part)
    while place >= 0:
        found.append(place)
        place = text.find(part, place + 1)
    return found


def _shown(path: str, text: str, line: int, more: int) -> str:
    """What an edit at a line (from 0) that took `more` lines besides looks like."""
    lines = text.split("\n")
    first = max(0, line - AROUND)
    part = numbered(lines[first : line + more + AROUND + 1], first + 1)
    return f"The file {path} was edited. The lines around the edit:\n{part}"
