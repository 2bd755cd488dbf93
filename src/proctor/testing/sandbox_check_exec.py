"""Checks of commands: their words, streams, codes, input, folder, variables and output."""

from __future__ import annotations

from typing import Final

import anyio

from proctor.sandbox.limits import EXEC_OUTPUT
from proctor.testing.sandbox_check_words import Subject, same, true


async def streams_are_apart_and_the_exit_code_is_given(subject: Subject) -> None:
    result = await subject.sh("echo out; echo err >&2; exit 3")
    same("result", (result.success, result.returncode, result.stdout, result.stderr), (False, 3, "out\n", "err\n"))


async def success_is_exit_code_0(subject: Subject) -> None:
    true("true fails", (await subject.sandbox.exec(["true"])).success)
    true("false succeeds", not (await subject.sandbox.exec(["false"])).success)


async def a_program_that_does_not_exist_is_an_ordinary_failure(subject: Subject) -> None:
    result = await subject.sandbox.exec(["no-such-program-anywhere", "x"])
    true("it must not succeed", not result.success)
    true(f"exit code {result.returncode} instead of 126 or 127", result.returncode in {126, 127})


async def arguments_arrive_as_they_are(subject: Subject) -> None:
    args = ["a b", "", "$HOME", "`id`", '"', "'", "\\", "*", "line\nline", "-n", "é漢🙂", ";", "a=b"]
    result = await subject.sandbox.exec(["sh", "-c", 'printf "[%s]" "$@"', "sh", *args])
    same("arguments", result.stdout, "".join(f"[{each}]" for each in args))


async def no_shell_sees_a_command(subject: Subject) -> None:
    same("output", (await subject.sandbox.exec(["printf", "%s", "$(echo no)"])).stdout, "$(echo no)")


async def text_can_be_its_input(subject: Subject) -> None:
    same("output", (await subject.sandbox.exec(["cat"], input="é\r\nx")).stdout, "é\r\nx")


async def bytes_can_be_its_input(subject: Subject) -> None:
    found = (await subject.sandbox.exec(["od", "-An", "-tx1", "-v"], input=bytes(range(256)))).stdout
    same("bytes", bytes.fromhex(found.replace("\n", " ")), bytes(range(256)))


async def large_input_is_taken(subject: Subject) -> None:
    same("bytes", (await subject.sandbox.exec(["wc", "-c"], input=b"x" * 3_000_000)).stdout.strip(), "3000000")


async def input_that_nobody_reads_does_no_harm(subject: Subject) -> None:
    same("code", (await subject.sandbox.exec(["true"], input=b"x" * 1_000_000)).returncode, 0)


async def without_input_there_is_an_end_of_file(subject: Subject) -> None:
    same("output", (await subject.sandbox.exec(["cat"], timeout=30)).stdout, "")


async def it_runs_in_the_working_folder(subject: Subject) -> None:
    await subject.sandbox.write_file("here.txt", "yes")
    same("output", await subject.out("cat here.txt"), "yes")


async def another_folder_may_be_named(subject: Subject) -> None:
    await subject.out("mkdir -p sub/deep")
    true("relative", (await subject.out("pwd", cwd="sub/deep")).strip().endswith("/sub/deep"))
    same("absolute", (await subject.out("pwd", cwd="/usr")).strip(), "/usr")


async def variables_are_added_for_one_command(subject: Subject) -> None:
    value = "a b\n$c é'\""
    same("value", await subject.out('printf %s "$SOME_VALUE"', env={"SOME_VALUE": value}), value)
    same("afterwards", await subject.out('printf %s "$SOME_VALUE"'), "")
    true("the search path is still there", await subject.out('printf %s "$PATH"', env={"SOME_VALUE": "x"}))


async def output_may_be_any_unicode(subject: Subject) -> None:
    same("output", await subject.out('printf "é漢🙂\\r\\n"'), "é漢🙂\r\n")


async def output_that_is_no_text_breaks_nothing(subject: Subject) -> None:
    found = await subject.out(r'printf "a\377b"')
    true(f"{found!r} is not a, something, b", found.startswith("a") and found.endswith("b"))


async def a_command_ended_by_a_signal_is_a_failure(subject: Subject) -> None:
    result = await subject.sh("kill -9 $$")
    true(f"exit code {result.returncode}", not result.success and result.returncode in {-9, 137, 9})


async def of_too_much_output_the_tail_is_kept(subject: Subject) -> None:
    result = await subject.sh(f"head -c {EXEC_OUTPUT + 1_000_000} /dev/zero | tr '\\0' x; echo END")
    true("the end is there", result.stdout.endswith("END\n"))
    true(f"{len(result.stdout)} bytes are kept", len(result.stdout) <= EXEC_OUTPUT)
    same("total", result.truncated.get("stdout"), EXEC_OUTPUT + 1_000_004)
    true("stderr is whole", "stderr" not in result.truncated)


async def of_too_many_errors_the_tail_is_kept(subject: Subject) -> None:
    result = await subject.sh(f"head -c {EXEC_OUTPUT + 1_000_000} /dev/zero | tr '\\0' x >&2; echo END >&2")
    true("the end is there", result.stderr.endswith("END\n"))
    true(f"{len(result.stderr)} bytes are kept", len(result.stderr) <= EXEC_OUTPUT)


async def as_much_output_as_is_allowed_is_whole(subject: Subject) -> None:
    result = await subject.sh(f"head -c {EXEC_OUTPUT} /dev/zero | tr '\\0' x")
    same("bytes", (len(result.stdout), dict(result.truncated)), (EXEC_OUTPUT, {}))


async def a_child_left_behind_holds_nothing_up(subject: Subject) -> None:
    began = anyio.current_time()
    result = await subject.sh("sleep 100 & echo hi", timeout=90)
    same("output", result.stdout, "hi\n")
    true("it waited for the child", anyio.current_time() - began < 60)


async def many_commands_at_once_keep_apart(subject: Subject) -> None:
    found: dict[int, str] = {}

    async def one(number: int) -> None:
        found[number] = await subject.out("sleep 0.1; cat; echo $0", str(number), input=f"in {number}\n")

    async with anyio.create_task_group() as nursery:
        for number in range(20):
            nursery.start_soon(one, number)
    same("outputs", found, {number: f"in {number}\n{number}\n" for number in range(20)})


EXEC_CHECKS: Final = (
    streams_are_apart_and_the_exit_code_is_given,
    success_is_exit_code_0,
    a_program_that_does_not_exist_is_an_ordinary_failure,
    arguments_arrive_as_they_are,
    no_shell_sees_a_command,
    text_can_be_its_input,
    bytes_can_be_its_input,
    large_input_is_taken,
    input_that_nobody_reads_does_no_harm,
    without_input_there_is_an_end_of_file,
    it_runs_in_the_working_folder,
    another_folder_may_be_named,
    variables_are_added_for_one_command,
    output_may_be_any_unicode,
    output_that_is_no_text_breaks_nothing,
    a_command_ended_by_a_signal_is_a_failure,
    of_too_much_output_the_tail_is_kept,
    of_too_many_errors_the_tail_is_kept,
    as_much_output_as_is_allowed_is_whole,
    a_child_left_behind_holds_nothing_up,
    many_commands_at_once_keep_apart,
)
