"""Checks of files: what is written is read, by whichever way, and what cannot be says why."""

from __future__ import annotations

from typing import Final

import anyio

from proctor.errors import OutputLimitExceededError
from proctor.sandbox.limits import READ_FILE
from proctor.testing.sandbox_check_words import CheckSkipped, Subject, raises, same, true


async def text_is_read_as_it_was_written(subject: Subject) -> None:
    for text in ("plain", "", "é漢🙂", "a\r\nb\nc\r", "\ufeffmark", "no newline at the end", "\0"):
        await subject.sandbox.write_file("f.txt", text)
        same("text", await subject.sandbox.read_file("f.txt"), text)


async def bytes_are_read_as_they_were_written(subject: Subject) -> None:
    data = bytes(range(256)) * 10
    await subject.sandbox.write_file("f.bin", data)
    same("bytes", await subject.sandbox.read_file("f.bin", False), data)  # noqa: FBT003 - as providers have it


async def a_large_file_is_read_as_it_was_written(subject: Subject) -> None:
    data = bytes(range(251)) * 20_000
    await subject.sandbox.write_file("f.bin", data)
    true("other bytes were read", await subject.sandbox.read_file("f.bin", text=False) == data)


async def an_existing_file_is_replaced(subject: Subject) -> None:
    await subject.sandbox.write_file("f", "a long text")
    await subject.sandbox.write_file("f", "short")
    same("text", await subject.sandbox.read_file("f"), "short")


async def folders_above_a_file_are_made(subject: Subject) -> None:
    await subject.sandbox.write_file("a/b/c/f", "x")
    same("text", await subject.out("cat a/b/c/f"), "x")


async def paths_may_be_absolute(subject: Subject) -> None:
    folder = (await subject.out("mktemp -d")).strip()
    try:
        await subject.sandbox.write_file(f"{folder}/f", "x")
        same("text", await subject.sandbox.read_file(f"{folder}/f"), "x")
        same("seen by a command", await subject.out('cat "$0/f"', folder), "x")
    finally:
        await subject.out('rm -r "$0"', folder)


async def names_may_be_anything(subject: Subject) -> None:
    for name in ("with blank", "-n", "é漢", "a'b\"c", "$HOME", "a;b", "*", "line\nline", "a\\b"):
        await subject.sandbox.write_file(name, name)
        same("text", await subject.sandbox.read_file(name), name)


async def commands_and_files_see_the_same(subject: Subject) -> None:
    await subject.out("printf 'by a command' > f")
    same("read", await subject.sandbox.read_file("f"), "by a command")
    await subject.sandbox.write_file("g", "by us")
    same("seen", await subject.out("cat g"), "by us")


async def a_missing_file_is_FileNotFoundError(subject: Subject) -> None:  # noqa: N802 - the name says it
    await raises(FileNotFoundError, subject.sandbox.read_file("nothing"))
    await raises(FileNotFoundError, subject.sandbox.read_file("no/such/folder"))


async def a_link_that_leads_nowhere_is_FileNotFoundError(subject: Subject) -> None:  # noqa: N802
    await subject.out("ln -s nowhere link")
    await raises(FileNotFoundError, subject.sandbox.read_file("link"))


async def a_folder_is_IsADirectoryError(subject: Subject) -> None:  # noqa: N802
    await subject.out("mkdir d")
    await raises(IsADirectoryError, subject.sandbox.read_file("d"))
    await raises(IsADirectoryError, subject.sandbox.write_file("d", "x"))


async def what_is_no_text_is_UnicodeDecodeError(subject: Subject) -> None:  # noqa: N802
    await subject.sandbox.write_file("f", b"a\xff")
    await raises(UnicodeDecodeError, subject.sandbox.read_file("f"))
    same("bytes", await subject.sandbox.read_file("f", text=False), b"a\xff")


async def what_may_not_be_read_is_PermissionError(subject: Subject) -> None:  # noqa: N802
    await _not_root(subject)
    await subject.out("echo x > f; chmod 000 f")
    await raises(PermissionError, subject.sandbox.read_file("f"))


async def what_may_not_be_written_is_PermissionError(subject: Subject) -> None:  # noqa: N802
    await _not_root(subject)
    await subject.out("echo x > f; chmod 400 f; mkdir d; chmod 500 d")
    await raises(PermissionError, subject.sandbox.write_file("f", "y"))
    await raises(PermissionError, subject.sandbox.write_file("d/new", "y"))
    await subject.out("chmod 700 d")


async def too_large_a_file_is_OutputLimitExceededError(subject: Subject) -> None:  # noqa: N802
    await subject.out(f"head -c {READ_FILE + 1} /dev/zero > f")
    await raises(OutputLimitExceededError, subject.sandbox.read_file("f", text=False))


async def files_written_at_once_keep_apart(subject: Subject) -> None:
    async def one(number: int) -> None:
        await subject.sandbox.write_file(f"folder/{number}", str(number) * 10_000)

    async with anyio.create_task_group() as nursery:
        for number in range(20):
            nursery.start_soon(one, number)
    for number in range(20):
        same("text", await subject.sandbox.read_file(f"folder/{number}"), str(number) * 10_000)


async def _not_root(subject: Subject) -> None:
    if (await subject.out("id -u")).strip() == "0":
        raise CheckSkipped("commands run as root inside, who may read and write everything")


FILE_CHECKS: Final = (
    text_is_read_as_it_was_written,
    bytes_are_read_as_they_were_written,
    a_large_file_is_read_as_it_was_written,
    an_existing_file_is_replaced,
    folders_above_a_file_are_made,
    paths_may_be_absolute,
    names_may_be_anything,
    commands_and_files_see_the_same,
    a_missing_file_is_FileNotFoundError,
    a_link_that_leads_nowhere_is_FileNotFoundError,
    a_folder_is_IsADirectoryError,
    what_is_no_text_is_UnicodeDecodeError,
    what_may_not_be_read_is_PermissionError,
    what_may_not_be_written_is_PermissionError,
    too_large_a_file_is_OutputLimitExceededError,
    files_written_at_once_keep_apart,
)
