"""A container, whether it runs, and what is known of one that does not."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from proctor.errors import SandboxUnavailableError
from proctor.sandbox.containers.engine import Engine

LINES: Final = 20  # last lines of a dead container's log in an error


@frozen(kw_only=True)
class Container:
    """A running container.

    Attributes:
        engine: whose. id: the engine's name for it. name: ours. service: what the compose file calls it.
        project: the containers that belong together. folder: its working folder. user: whom commands run as.
    """

    engine: Engine
    id: str
    name: str
    service: str
    project: str
    folder: str
    user: str = ""


async def raise_if_dead(container: Container) -> None:
    """Ask whether a container runs.

    Raises:
        SandboxUnavailableError: it does not, with its state and its last log lines.
    """
    found = await container.engine.inspect(container.id, ending=True)
    if not found or not found[0].get("State", {}).get("Running"):
        raise await unavailable(container, "", found)


async def unavailable(
    container: Container, said: str = "", found: list[dict[str, object]] | None = None
) -> SandboxUnavailableError:
    """The error for a container that is no longer there, with what is known of its end."""
    engine = container.engine
    if found is None:
        try:
            found = await engine.inspect(container.id, ending=True)
        except Exception:
            found = []
    text = f"the container {container.name} (service {container.service}) is no longer there"
    if found:
        text = f"the container {container.name} (service {container.service}) {describe(found[0].get('State'))}"
        try:
            logs = await engine.call("logs", "--tail", str(LINES), container.id, ending=True, timeout=10.0)
            written = (logs.stdout + logs.stderr).decode("utf-8", "replace").strip()
        except Exception:
            written = ""
        text += f"; its last output:\n{written[-4000:]}" if written else "; it had written nothing"
    return SandboxUnavailableError(f"{text} ({said})" if said else text)


def describe(state: object) -> str:
    """A container's state in words: ``is exited with code 137 (out of memory)``."""
    if not isinstance(state, dict):
        return "is in an unknown state"
    status, code = state.get("Status") or "gone", state.get("ExitCode")
    if state.get("Running") and status == "running":
        return "is running"
    why = " (out of memory)" if state.get("OOMKilled") else f" ({state['Error']})" if state.get("Error") else ""
    return f"has ended: {status} with code {code}{why}"


__all__ = ["Container", "describe", "raise_if_dead", "unavailable"]
