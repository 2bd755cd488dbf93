"""Sets of evaluations: tried again until all is done, in one runtime, and ended when nothing more can be."""

from __future__ import annotations

import inspect
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor import Task, eval, eval_async, eval_retry, eval_retry_async, eval_set, eval_set_async
from proctor.dataset import Sample
from proctor.errors import ModelGivenUp, OptionError, UsageError
from proctor.evaluation import setapi
from proctor.evaluation.evalset import SetOptions
from proctor.log import EvalLog, read_eval_log
from proctor.model import ModelOutput, ModelUsage
from proctor.runtime import current_runtime
from proctor.scorer import includes
from proctor.solver import TaskState, solver
from proctor.testing import FakeCall, FakeModel


class Failing:
    """A model whose answer to each question fails a number of times first."""

    def __init__(self, name: str = "m", **times: int) -> None:
        self.left, self.asked = Counter(times), Counter[str]()
        self.fake = FakeModel(name=name, answer=self.answer)

    def answer(self, call: FakeCall) -> Any:
        self.asked[call.text] += 1
        if self.left[call.text]:
            self.left[call.text] -= 1
            return ValueError("not yet")
        output = ModelOutput.from_content("m", call.text)
        output.usage = ModelUsage(output_tokens=10, total_tokens=10)
        return output


def task(*inputs: str, name: str = "t", **more: Any) -> Task:
    return Task([Sample(text, id=text, target=text) for text in inputs], scorer=includes(), name=name, **more)


async def run(folder: Path, tasks: Any, *models: Any, **options: Any) -> tuple[bool, list[EvalLog], float]:
    began = anyio.current_time()
    given = [model.fake.model() if isinstance(model, Failing) else model for model in models]
    done, logs = await eval_set_async(tasks, str(folder), model=given, **{"display": "none", **options})
    return done, logs, anyio.current_time() - began


async def test_it_tries_again_with_growing_pauses_until_all_is_done(tmp_path: Path) -> None:
    model = Failing(b=2)
    done, [log], took = await run(tmp_path, task("a", "b"), model, max_samples=1)
    assert done
    assert model.asked == {"a": 1, "b": 3}
    assert 90 <= took < 91  # 30 s and 60 s
    assert [path.name for path in tmp_path.iterdir()] == [Path(log.location).name]
    assert read_eval_log(log.location).status == "success"
    done, [again], took = await run(tmp_path, task("a", "b"), model)
    assert (done, again.location, took < 1) == (True, log.location, True)
    assert model.asked == {"a": 1, "b": 3}


async def test_a_set_that_is_complete_is_not_touched(tmp_path: Path) -> None:
    model = Failing()
    _, [log], _ = await run(tmp_path, task("a", "b"), model)
    before = Path(log.location).read_bytes()
    done, _, _ = await run(tmp_path, task("a", "b"), model)
    assert done
    assert Path(log.location).read_bytes() == before
    done, [log], _ = await run(tmp_path, task("a", "b", "c"), model)
    assert model.asked == {"a": 1, "b": 1, "c": 1}
    assert len(read_eval_log(log.location).samples or ()) == 3


async def test_it_ends_after_so_many_attempts(tmp_path: Path) -> None:
    model = Failing(b=100)
    done, [log], took = await run(tmp_path, task("a", "b"), model, retry_attempts=3, retry_wait=1, max_samples=1)
    assert (done, log.status) == (False, "error")
    assert model.asked == {"a": 1, "b": 3}
    assert 3 <= took < 4
    done, [log], _ = await run(tmp_path, task("a", "b"), model, retry_attempts=1, max_samples=1)
    assert (done, model.asked) == (False, {"a": 1, "b": 4}), "another call goes on where it was"


async def test_a_model_that_is_given_up_gets_one_request_an_attempt(tmp_path: Path) -> None:
    refused = Failing("refused")
    refused.fake.answer = lambda call: (
        refused.asked.update([call.text]) or ModelGivenUp("the key is refused", status=401)
    )
    slow = Failing("slow", b=2)
    inputs = [chr(ord("a") + n) for n in range(9)]
    done, logs, _ = await run(tmp_path, task(*inputs), refused, slow, retry_wait=1, max_samples=1)
    assert not done
    assert [log.status for log in logs] == ["error", "success"]
    assert logs[0].error is not None
    assert "the key is refused" in logs[0].error.message
    # Three attempts because of the other model; then all that is left is given up, and that ends it.
    assert refused.asked.total() == 3
    assert slow.asked == Counter(inputs) + Counter(b=2)


async def test_a_set_whose_models_are_all_given_up_ends_at_once(tmp_path: Path) -> None:
    refused = Failing("refused")
    refused.fake.answer = ModelGivenUp("the key is refused", status=401)
    done, [log], took = await run(tmp_path, task("a", "b"), refused)
    assert (done, log.status, took < 1) == (False, "error", True)
    assert refused.fake.calls == 1


async def test_a_budget_counts_over_all_attempts(tmp_path: Path) -> None:
    model = Failing(b=1)
    options = {"max_total_tokens": 40, "retry_wait": 1, "fail_on_error": 1, "max_samples": 1, "max_connections": 1}
    done, [log], _ = await run(tmp_path, task(*"abcdefgh"), model, **options)
    assert not done
    assert log.status == "cancelled"
    assert log.error is not None
    assert "max_total_tokens" in log.error.message
    assert model.asked.total() == 1 + 4, "one failed, four used the budget up"


async def test_a_time_budget_leaves_no_room_for_a_pause_beyond_it(tmp_path: Path) -> None:
    model = Failing(b=100)
    done, _, took = await run(tmp_path, task("a", "b"), model, max_run_time=100, retry_wait=30)
    assert not done
    assert took < 100
    assert model.asked["b"] == 3  # at 0, 30 and 90 s


async def test_all_attempts_happen_in_one_runtime(tmp_path: Path) -> None:
    seen: list[Any] = []

    @solver
    def noting() -> Any:
        async def solve(state: TaskState, generate: Any) -> TaskState:
            seen.append(current_runtime())
            return await generate(state)

        return solve

    done, _, _ = await run(tmp_path, task("a", solver=noting()), Failing(a=2), retry_wait=1)
    assert done
    assert len(seen) == 3
    assert len(set(map(id, seen))) == 1


async def test_ten_tasks_run_at_once_unless_told(tmp_path: Path) -> None:
    model = FakeModel(latency=1, max_connections=100)
    tasks = [task("a", name=f"t{n}") for n in range(12)]
    assert (await eval_set_async(tasks, str(tmp_path / "one"), model=model.model(), display="none"))[0]
    assert model.peak == 10
    model.peak = 0
    assert (await eval_set_async(tasks, str(tmp_path / "two"), model=model.model(), display="none", max_tasks=3))[0]
    assert model.peak == 3


async def test_one_log_for_each_task_and_model(tmp_path: Path) -> None:
    models = [Failing("one", b=1), Failing("two", a=1)]
    tasks = [task("a", "b", name="first"), task("a", name="second")]
    done, logs, _ = await run(tmp_path, tasks, *models, retry_wait=1)
    assert done
    found = [(log.eval.task, log.eval.model) for log in logs]
    assert found == [("first", "fake/one"), ("second", "fake/one"), ("first", "fake/two"), ("second", "fake/two")]
    assert len(list(tmp_path.iterdir())) == 4
    assert len({log.eval.eval_set_id for log in logs}) == 1
    assert all(log.eval.eval_set_id for log in logs)


async def test_logs_of_others_are_refused_unless_allowed(tmp_path: Path) -> None:
    await eval_async(task("x", name="other"), FakeModel().model(), log_dir=str(tmp_path), display="none")
    with pytest.raises(UsageError, match="holds logs of other tasks or models"):
        await run(tmp_path, task("a"), Failing())
    done, _, _ = await run(tmp_path, task("a"), Failing(), log_dir_allow_dirty=True)
    assert done
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("told", [False, True])
async def test_superseded_logs_are_cleaned_only_when_told(tmp_path: Path, *, told: bool) -> None:
    await run(tmp_path, task("a", version=1), Failing())
    done, [log], _ = await run(tmp_path, task("a", version=2), Failing(), retry_cleanup=told)
    assert done
    assert len(list(tmp_path.iterdir())) == (1 if told else 2)
    assert Path(log.location).exists()
    await run(tmp_path, task("a", version=2), Failing(), retry_cleanup=True)
    assert [path.name for path in tmp_path.iterdir()] == [Path(log.location).name]


async def test_a_stop_in_a_pause_ends_it_at_once(tmp_path: Path) -> None:
    model = Failing(a=100)
    given = dict.fromkeys(inspect.signature(eval_set).parameters)
    given |= {
        "tasks": task("a"),
        "log_dir": str(tmp_path),
        "model": model.fake.model(),
        "display": "none",
        "config": {},
    }
    call, options = setapi._read(given)
    began = anyio.current_time()
    async with setapi._opened(call, options, ()) as opened, anyio.create_task_group() as group:

        async def stop() -> None:
            await anyio.sleep(40)
            opened.stop("enough")

        group.start_soon(stop)
        done, [log] = await opened.run()
    assert (done, log.status) == (False, "error")
    assert model.asked == {"a": 2}
    assert anyio.current_time() - began < 41


async def test_two_runs_write_into_one_folder(tmp_path: Path) -> None:
    async def one(word: str) -> None:
        await eval_async(
            task(*(f"{word}{n}" for n in range(20))),
            FakeModel(latency=1).model(),
            log_dir=str(tmp_path),
            display="none",
        )

    async with anyio.create_task_group() as group:
        group.start_soon(one, "a")
        group.start_soon(one, "b")
    logs = [read_eval_log(path) for path in tmp_path.glob("*.eval")]
    assert sorted(len(log.samples or ()) for log in logs) == [20, 20]


def test_pauses_double_and_end_at_an_hour() -> None:
    options = SetOptions(wait=30)
    assert [options.pause(n) for n in (1, 2, 3)] == [30, 60, 120]
    assert options.pause(9) == options.pause(1000) == 3600


@pytest.mark.parametrize(
    ("options", "named"),
    [({"attempts": 0}, "retry_attempts"), ({"wait": -1}, "retry_wait"), ({"connections": 0}, "retry_connections")],
    ids=str,
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        SetOptions(**options)


async def test_connections_shrink_with_each_attempt_when_wanted(tmp_path: Path) -> None:
    model = Failing(**dict.fromkeys("abcdefgh", 1))
    model.fake.latency = 1
    peaks: list[int] = []
    plain = model.answer

    def answer(call: FakeCall) -> Any:
        peaks.append(model.fake.peak)
        model.fake.peak = 0
        return plain(call)

    model.fake.answer = answer
    done, _, _ = await run(
        tmp_path, task(*"abcdefgh"), model, retry_connections=0.5, max_connections=4, retry_wait=1, fail_on_error=8
    )
    assert done
    assert max(peaks[:8]) == 4
    assert max(peaks[8:]) <= 2


@pytest.mark.parametrize(("some", "all_of"), [(eval_set, eval), (eval_set_async, eval_async)])
def test_a_set_takes_whatever_an_evaluation_takes(some: Any, all_of: Any) -> None:
    assert set(inspect.signature(all_of).parameters) <= set(inspect.signature(some).parameters)


def test_both_faces_of_a_retry_take_the_same() -> None:
    found = [set(inspect.signature(each).parameters) for each in (eval_retry, eval_retry_async)]
    assert found[0] - found[1] == {"async_backend", "signals"}


async def test_a_set_with_logs_in_json_is_complete_too(tmp_path: Path) -> None:
    model = Failing(b=2)
    inputs = task("a", "b")
    done, [log], _ = await run(tmp_path, inputs, model, log_format="json", max_samples=1, retry_wait=1)
    assert (done, Path(log.location).suffix) == (True, ".json")
    for _ in range(2):
        assert (await run(tmp_path, inputs, model, log_format="json"))[0]
    assert model.asked == {"a": 1, "b": 3}
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


async def test_a_set_that_another_process_works_on_is_refused(tmp_path: Path) -> None:
    import fcntl

    model = Failing(b=9)
    _, [log], _ = await run(tmp_path, task("a", "b"), model, retry_attempts=1)
    with Path(log.location).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="another process works on this set"):
            await run(tmp_path, task("a", "b"), model)
