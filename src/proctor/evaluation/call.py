"""One call of `eval`: what was said, the runtime it happens in, its plan, and the run of it."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import anyio
from attrs import frozen

from proctor import registry
from proctor.actors import holding_nothing
from proctor.errors import LogError, OptionError
from proctor.evaluation.budget import Budget
from proctor.evaluation.fit import make_room
from proctor.evaluation.header import git_revision
from proctor.evaluation.plan import PlannedRun, Tasks, make_plan
from proctor.evaluation.run import RunActor
from proctor.evaluation.said import Said
from proctor.evaluation.sandboxing import check_sandboxes
from proctor.evaluation.sink import OpenLog
from proctor.log.places import S3Place, place_of
from proctor.log.records import EvalLog
from proctor.log.upload import open_log as log_opener
from proctor.log.working import look_into
from proctor.process import leaving_no_children
from proctor.runtime import Runtime, current_runtime, open_runtime
from proctor.runtime.backend import in_main_thread, signal_handlers
from proctor.runtime.interrupt import open_interrupts
from proctor.runtime.runtime import SHARED
from proctor.runtime.settings import Resolved, Settings, load_dotenv

ELSEWHERE: Final = frozenset({"tasks", "config", "signals"})
"""Arguments of `eval` that are no options of the runs."""


@frozen(kw_only=True)
class EvalCall:
    """What one call was given, read and checked; nothing is loaded yet."""

    tasks: Tasks
    said: Said

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> EvalCall:
        """The call with these arguments of `eval`, and with what the environment says.

        Raises:
            OptionError: an option is unknown or its value is refused; the text names where it came from.
        """
        load_dotenv()
        tasks = arguments.get("tasks")
        options = {name: value for name, value in arguments.items() if name not in ELSEWHERE}
        return cls(
            tasks=tasks.value if isinstance(tasks, Resolved) else tasks,
            said=Said.of(options, arguments.get("config") or {}),
        )

    @asynccontextmanager
    async def opened(self, *, signals: Sequence[int] = (), open_log: OpenLog | None = None) -> AsyncIterator[RunActor]:
        """The run of this call, in the current runtime or one of its own.

        Args:
            signals: those that may stop the loading of task files where it stands.
            open_log: opens the logs, in place of files in `log_dir`; nothing is looked at on the disk then.

        Raises:
            UsageError: a mistake in the call; nothing was run.
        """
        self.display()
        async with self.in_runtime() as runtime:
            with stopped_at_once_by(signals):
                plan = self.plan()
            make_room(plan, runtime)
            if open_log is None:
                await runtime.to_thread(prepare_log_dir, plan[0].options.log_dir)
            yield self.actor(runtime, plan, open_log=open_log)

    def actor(
        self,
        runtime: Runtime,
        plan: Sequence[PlannedRun],
        *,
        open_log: OpenLog | None = None,
        budget: Budget | None = None,
        since: float | None = None,
    ) -> RunActor:
        """The run of a plan with what this call says of display, prices and budgets.

        Args:
            budget: of several attempts together; default what the call says.
            since: when the first of them began (`anyio.current_time`); default now.
        """
        return RunActor(
            runtime=runtime,
            plan=plan,
            display=self.display(),
            budget=budget or Budget.of(self.said),
            prices=self.said.get("model_cost_config") or {},
            open_log=open_log or log_opener,
            find_revision=git_revision if open_log is None else lambda _: None,
            since=since,
        )

    def plan(self) -> list[PlannedRun]:
        """The runs of this call, in plan order; to be called in its runtime."""
        plan = make_plan(self.tasks, self.said)
        check_sandboxes(plan)
        return plan

    @asynccontextmanager
    async def in_runtime(self) -> AsyncIterator[Runtime]:
        """The current runtime, held to the limits that this call asks for, or one of its own."""
        current = current_runtime()
        if current is None:
            async with open_runtime(self.settings()) as opened:
                yield opened
            return
        with self._joined(current):
            yield current

    def settings(self) -> Settings:
        """The settings of a runtime of its own."""
        given: dict[str, Any] = {name: said for name, said in self.said.call.items() if name in SHARED}
        backend, seed = self.said.find("async_backend"), self.said.find("runtime_seed")
        return Settings.resolve(async_backend=backend, seed=seed, **given)

    @contextmanager
    def _joined(self, runtime: Runtime) -> Iterator[None]:
        if (seed := self.said.call.get("runtime_seed")) is not None and seed.value != runtime.seed:
            raise OptionError(
                "runtime_seed: this evaluation joins a runtime, whose seed was chosen when that was opened; give it "
                "there: open_runtime(Settings(seed=…))"
            )
        with ExitStack() as held:
            for name in SHARED:
                if (said := self.said.call.get(name)) is not None:
                    held.enter_context(runtime.shared[name].asked(said))
            held.enter_context(holding_nothing())  # an evaluation inside a sample begins with empty hands
            yield

    def display(self) -> Any:
        """The display that the call names.

        Raises:
            NotFoundError: there is none of this name.
        """
        chosen = self.said.get("display")
        if chosen is None:
            chosen = "rich" if sys.stdout.isatty() else "plain"
        return registry.lookup("display", chosen)


async def interruptible(call: EvalCall, signals: tuple[int, ...]) -> list[EvalLog]:
    """Run the call; the first Ctrl-C ends it in order, the second at once, the third ends the process."""
    logs: list[EvalLog] = []
    async with open_interrupts(signals) as interrupts, call.opened(signals=signals) as actor:
        interrupts.exit_now = leaving_no_children(actor.runtime, interrupts.exit_now)
        async with anyio.create_task_group() as nursery:

            async def watch() -> None:
                await interrupts.wait_phase(1)
                actor.cancel("interrupted: finishing the logs (at most 5 s; Ctrl-C again to hurry)")
                await interrupts.wait_phase(2)
                actor.hurry()

            nursery.start_soon(watch)
            logs = await actor.run()
            nursery.cancel_scope.cancel()
        if interrupts.phase:
            raise KeyboardInterrupt
        return logs


@contextmanager
def stopped_at_once_by(signals: Sequence[int]) -> Iterator[None]:
    """Let a Ctrl-C end the block where it stands: it runs users' files, and nothing has begun that must end in order.

    Whoever handles it later only counts it, which would hold a file that sleeps or computes until it is done.
    """
    if not (signals and in_main_thread()):
        yield
        return
    with signal_handlers(_stop, *signals):
        yield


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def prepare_log_dir(folder: str) -> None:
    """Make the folder of the logs, so that one that cannot be written is told of before anything runs."""
    place = place_of(folder)
    if isinstance(place, S3Place):
        look_into(place)
        return
    what = "made"
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        what = "written to"
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise LogError(
            f"log_dir {folder} cannot be {what}: {reason}; name another with --log-dir (log_dir=…)"
        ) from None
