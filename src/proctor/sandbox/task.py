"""The sandboxes of one task: which one a sample gets, what is prepared once, and what is tidied up at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import anyio
from attrs import define, field, frozen

from proctor.actors import Lease
from proctor.errors import ActorGone
from proctor.log.spec import SandboxEnvironmentSpec
from proctor.runtime import Runtime, SampleContext
from proctor.sandbox.environment import SandboxEnvironment, find_provider
from proctor.sandbox.pool import SandboxPool, sandbox_pool

logger: Final = logging.getLogger(__name__)

Bounded = Callable[[], AbstractContextManager[anyio.CancelScope]]
"""A shield for a removal, with the deadline that holds just now."""

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
variables_variable: Final[ContextVar[Mapping[str, str]]] = ContextVar("proctor_sandbox_variables", default=_NOTHING)


def task_environment() -> Mapping[str, str]:
    """Inside `task_init` and `task_cleanup`: the environment variables that `task_init_environment` asked for."""
    return variables_variable.get()


@frozen(eq=False, kw_only=True)
class Want:
    """The sandbox that a sample is to have.

    Attributes:
        spec: type and configuration. task: whose sample it is. variables: for what is prepared once.
        pool: of its type. error: why it cannot have it; then there is no pool.
    """

    task: TaskSandboxes
    spec: SandboxEnvironmentSpec
    metadata: Mapping[str, Any] = field(factory=dict)
    provider: type[SandboxEnvironment] | None = None
    variables: Mapping[str, str] = field(factory=dict)
    pool: SandboxPool | None = None
    error: Exception | None = None

    def lease(self, group: str, outer: SampleContext | None = None) -> Lease | None:
        """A place in the pool, to be taken together with the sample's; None when there is none to be had.

        Args:
            outer: the sample in which this one runs. If it holds a sandbox, they share its place: it waits for this
                one, so a place of its own could be one that never comes free.
        """
        if self.pool is None or (outer is not None and outer.sandboxed):
            return None
        return self.pool.estate.limiter.lease(group=group)


@define(eq=False)
class _Preparation:
    """What is done once for a configuration.

    Attributes:
        waiting: those who wait for it. error: it failed, so all that need it do. begun: there may be something to
            tidy up.
    """

    want: Want
    done: bool = field(default=False, init=False)
    running: bool = field(default=False, init=False)
    begun: bool = field(default=False, init=False)
    error: Exception | None = field(default=None, init=False)
    waiting: list[anyio.Event] = field(factory=list, init=False)


@define(eq=False, kw_only=True)
class TaskSandboxes:
    """The sandboxes of one task on one model.

    Attributes:
        task_name: what providers call it. spec: the task's own sandbox, which goes before that of a sample.
        cleanup: remove environments when they are not needed any more.
        folders: where files of samples and configurations are looked for.
    """

    runtime: Runtime
    task_name: str
    spec: SandboxEnvironmentSpec | None
    cleanup: bool = True
    folders: Sequence[Path] = ()
    _prepared: dict[Any, _Preparation] = field(factory=dict, init=False)

    async def want(
        self, of_sample: SandboxEnvironmentSpec | None, metadata: Mapping[str, Any] | None = None
    ) -> Want | None:
        """What a sample is to have, None when it has no sandbox.

        Raises:
            ActorGone: the pool has failed too often: nobody gets one any more.
        """
        spec = self.spec or of_sample
        if spec is None:
            return None
        try:
            spec = chosen(self.spec, of_sample)
            provider = find_provider(spec.type)
            spec = located(spec, provider, self.folders)
            variables = await provider.task_init_environment(spec.config, dict(metadata or {}))
            pool = await sandbox_pool(self.runtime, spec.type, provider)
        except ActorGone:
            raise
        except Exception as error:
            return Want(task=self, spec=spec, error=error)
        return Want(
            task=self, spec=spec, metadata=metadata or {}, provider=provider, variables=variables or {}, pool=pool
        )

    async def prepare(self, want: Want) -> None:
        """Have the provider prepare for a configuration, once in the task; whoever comes meanwhile waits for it.

        Raises:
            Exception: what the provider raised, again for each who needs it.
        """
        key = _key(want)
        preparation = self._prepared.setdefault(key, _Preparation(want))
        while preparation.running:
            event = anyio.Event()
            preparation.waiting.append(event)
            await event.wait()
        if preparation.error is not None:
            raise preparation.error
        if not preparation.done:
            await self._prepare(want, preparation)

    async def _prepare(self, want: Want, preparation: _Preparation) -> None:
        assert want.provider is not None
        preparation.running = preparation.begun = True
        token = variables_variable.set(want.variables)
        try:
            await want.provider.task_init(self.task_name, want.spec.config)
            preparation.done = True
        except Exception as error:
            preparation.error = error
            raise
        finally:
            variables_variable.reset(token)
            # One that was cancelled here is done by the next who needs it.
            preparation.running = False
            for event in preparation.waiting:
                event.set()
            preparation.waiting.clear()

    async def close(self, bounded: Bounded) -> list[str]:
        """Tidy up after every configuration that was prepared, all at once, whatever cancels the task.

        Returns:
            What could not be done, in words.
        """
        left: list[str] = []
        if not self.cleanup:
            kinds = sorted({each.want.spec.type for each in self._prepared.values() if each.begun})
            left += [f"{self.task_name}: its {kind} sandboxes are kept; {removal(kind)}" for kind in kinds]
        with bounded():
            async with anyio.create_task_group() as nursery:
                for preparation in self._prepared.values():
                    if preparation.begun:
                        nursery.start_soon(self._tidy, preparation.want, left)
        return left

    async def _tidy(self, want: Want, left: list[str]) -> None:
        assert want.provider is not None
        token = variables_variable.set(want.variables)
        ended = False
        try:
            await want.provider.task_cleanup(self.task_name, want.spec.config, self.cleanup)
            ended = True
        except Exception as error:
            ended = True
            left.append(f"sandbox {want.spec.type}: the task's cleanup failed: {error or type(error).__name__}")
        finally:
            variables_variable.reset(token)
            if not ended:
                left.append(f"sandbox {want.spec.type}: the task's cleanup did not end; {removal(want.spec.type)}")


def removal(name: str, id: str | None = None) -> str:
    """What a user is told to remove leftovers with."""
    return f"remove what is left with: proctor sandbox cleanup {name}{f' {id}' if id else ''}"


def chosen(of_task: SandboxEnvironmentSpec | None, of_sample: SandboxEnvironmentSpec | None) -> SandboxEnvironmentSpec:
    """The sandbox of a sample, as Inspect chooses it: the task's type, the sample's configuration where that fits.

    It fits the type it was given for, and as a Dockerfile or compose file any type that takes those.
    """
    one = of_task or of_sample
    assert one is not None
    if of_task is None or of_sample is None or of_sample.config is None:
        return one
    if of_sample.type == of_task.type:
        return of_sample
    if is_container_file(of_sample.config) and find_provider(of_task.type).is_docker_compatible():
        return SandboxEnvironmentSpec(of_task.type, of_sample.config)
    return of_task


def is_container_file(config: Any) -> bool:
    """Whether a configuration is the name of a Dockerfile or of a compose file."""
    name = Path(config).name if isinstance(config, str) else ""
    return "Dockerfile" in name or (name.endswith((".yaml", ".yml")) and "compose" in name)


def located(
    spec: SandboxEnvironmentSpec, provider: type[SandboxEnvironment], folders: Sequence[Path]
) -> SandboxEnvironmentSpec:
    """`spec` with its configuration file found beside the task, or one of the provider's usual names there."""
    names = [spec.config] if isinstance(spec.config, str) else provider.config_files() if spec.config is None else []
    for folder in folders:
        for name in names:
            try:
                path = folder / name
                if path.is_file():
                    return SandboxEnvironmentSpec(spec.type, str(path.absolute()))
            except (OSError, ValueError):
                continue
    return spec


def _key(want: Want) -> Any:
    config, variables = want.spec.config, tuple(sorted(want.variables.items()))
    try:
        hash(config)
    except TypeError:
        return want.spec.type, repr(config), variables
    return want.spec.type, config, variables
