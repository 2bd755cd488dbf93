"""A limit of the whole runtime: as opened, as asked for by those that run, as set meanwhile."""

from __future__ import annotations

import pytest

from proctor.errors import NotFoundError, OptionError
from proctor.runtime import Resolved, Settings, open_runtime
from proctor.runtime.limits import SharedLimit


def test_the_smallest_that_is_asked_for_holds_and_then_what_it_was_opened_with() -> None:
    seen: list[int | None] = []
    limit = SharedLimit("max_total_samples", Resolved(10, "command line"))
    stop = limit.follow(seen.append)
    with limit.asked(Resolved(6, "a")):
        with limit.asked(Resolved(4, "b")), limit.asked(Resolved(None)):
            assert limit.resolved == Resolved(4, "b")
        assert limit.resolved == Resolved(6, "a")
        with limit.asked(Resolved(20, "c")):
            assert limit.value == 6
    assert limit.resolved == Resolved(10, "command line")
    stop()
    with limit.asked(Resolved(1, "d")):
        pass
    assert [each for number, each in enumerate(seen) if number == 0 or seen[number - 1] != each] == [10, 6, 4, 6, 10]


def test_one_may_ask_for_more_than_it_was_opened_with() -> None:
    limit = SharedLimit("max_total_samples", Resolved(10))
    with limit.asked(Resolved(20, "a")):
        assert limit.value == 20


def test_what_is_set_meanwhile_goes_before_all_until_it_is_taken_back() -> None:
    limit = SharedLimit("max_total_samples", Resolved(None))
    with limit.asked(Resolved(6, "a")):
        limit.set(50, source="set while it ran")
        assert limit.resolved == Resolved(50, "set while it ran")
        limit.set(None, source="set while it ran")
        assert limit.resolved == Resolved(6, "a")
    assert limit.value is None


async def test_a_runtime_has_the_three_and_holds_samples_to_one() -> None:
    async with open_runtime(Settings.resolve(source="command line", max_total_samples=3, max_sandboxes=2)) as runtime:
        assert runtime.shared["max_total_samples"].resolved == Resolved(3, "command line")
        assert runtime.shared["max_sandboxes"].resolved == Resolved(2, "command line")
        assert runtime.shared["max_subprocesses"].resolved == Resolved(None, "built-in")
        assert runtime.samples.limit == 3
        assert runtime.samples in runtime.limiters()
        assert runtime.set_limit("max_sandboxes", 9) == 1
        assert runtime.shared["max_sandboxes"].value == 9
        with pytest.raises(OptionError, match="max_sandboxes must be a whole number of at least 1, not 0"):
            runtime.set_limit("max_sandboxes", 0)
        with pytest.raises(NotFoundError, match="nothing that runs here has it"):
            runtime.set_limit("max_samples", 3)


async def test_without_a_limit_samples_are_not_among_the_limiters_that_are_shown() -> None:
    async with open_runtime() as runtime:
        assert runtime.samples not in runtime.limiters()
        runtime.set_limit("max_total_samples", 5)
        assert runtime.samples in runtime.limiters()
