"""Answers that are used again: one small file an answer, named by what was asked.

A file is written whole or not at all (a new file that is renamed), and one that cannot be read is no answer. What was
asked are the model, its base URL and arguments, the configuration as far as it changes answers, the messages without
their ids and sources, the tools, the choice among them, and the epoch unless the policy says otherwise. Refusals are
not kept.

Rejected: pickles, which a changed class breaks and a stranger's file abuses; a database, whose lock all calls of all
processes would wait for.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec
from attrs import frozen

from proctor.errors import OptionError
from proctor.log.encode import encode
from proctor.model.config import CACHE_EXPIRY, CachePolicy, GenerateConfig
from proctor.model.messages import ChatMessage
from proctor.model.output import ModelOutput
from proctor.model.toolcall import ToolChoice, ToolInfo
from proctor.runtime.clock import utc_now
from proctor.runtime.runtime import new_id
from proctor.runtime.settings import environ

FORMAT: Final = 1
SUFFIX: Final = ".answer"
UNITS: Final[Mapping[str, int]] = {
    "s": 1, "m": 60, "h": 3600, "D": 86400, "W": 7 * 86400, "M": 30 * 86400, "Y": 365 * 86400,
}  # fmt: skip
NEUTRAL: Final = frozenset(
    {
        "max_retries", "timeout", "attempt_timeout", "stream_idle_timeout", "max_connections", "adaptive_connections",
        "cache", "cache_prompt", "batch", "fail_on_refusal",
    }
)  # fmt: skip
"""Fields of a configuration that do not change what a model answers."""


def policy_of(cache: Any, config: GenerateConfig) -> CachePolicy | None:
    """The policy of a call: what the call says, else its configuration; None for no cache.

    Raises:
        OptionError: it is neither true, false nor a policy, or its expiry is no time.
    """
    said = config.cache if cache is None or cache is False else cache
    if said is None or said is False:
        return None
    policy = CachePolicy() if said is True else said
    if not isinstance(policy, CachePolicy):
        raise OptionError(f"cache must be true, false or a CachePolicy, not {policy!r}")
    _lifetime(policy)
    return policy


def _lifetime(policy: CachePolicy) -> timedelta | None:
    if policy.expiry is None:
        return None
    found = CACHE_EXPIRY.fullmatch(policy.expiry)
    if found is None:
        raise OptionError(
            f"cache: {policy.expiry!r} is no time to keep answers; it is a number and one of {', '.join(UNITS)}, as 12h"
        )
    number, unit = found.groups()
    return timedelta(seconds=int(number) * UNITS[unit if unit in UNITS else unit.upper()])


@frozen(kw_only=True)
class CacheEntry:
    """What was asked, and so where its answer is.

    Attributes:
        model: its name. base_url, arguments: of its client. epoch: None where it makes no difference.
    """

    model: str
    base_url: str | None
    arguments: Hashable
    config: GenerateConfig
    input: Sequence[ChatMessage]
    tools: Sequence[ToolInfo]
    tool_choice: ToolChoice
    epoch: int | None
    policy: CachePolicy

    def path(self) -> Path:
        """The file of its answer."""
        config = self.config.model_dump(exclude=set(NEUTRAL), exclude_none=True)
        asked = [
            FORMAT,
            self.model,
            self.base_url,
            repr(self.arguments),
            {name: config[name] for name in sorted(config)},
            [message.model_dump(exclude={"id", "source", "model"}, exclude_none=True) for message in self.input],
            list(self.tools),
            self.tool_choice,
            self.epoch if self.policy.per_epoch else None,
            self.policy.expiry,
            dict(sorted(self.policy.scopes.items())),
        ]
        return cache_path(self.model) / (hashlib.sha256(encode(asked)).hexdigest() + SUFFIX)


def cache_fetch(path: Path) -> ModelOutput | None:
    """The answer that a file holds, None for one that is missing, too old or damaged. It blocks."""
    data = _read(path)
    if data is None or _expired(data, utc_now()):
        return None
    try:
        return ModelOutput.model_validate(data["output"])
    except Exception:
        return None  # whatever is wrong with it, it is no answer


def cache_store(path: Path, output: ModelOutput, policy: CachePolicy) -> bool:
    """Keep an answer; whether that was done: refusals are not kept, and a full disk is no failure of the call.

    It blocks.
    """
    if not storable(output):
        return False
    lifetime = _lifetime(policy)
    until = None if lifetime is None else (utc_now() + lifetime).isoformat()
    new = path.with_name(f".{new_id()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(encode({"format": FORMAT, "expiry": until, "output": output}))
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        return False
    return True


def storable(output: ModelOutput) -> bool:
    """Whether an output is an answer, and neither a refusal nor an error."""
    if output.error is not None or not output.choices:
        return False
    return all(choice.stop_reason != "content_filter" and choice.stop_details is None for choice in output.choices)


def cache_path(model: str = "") -> Path:
    """The folder of answers, or of those of one model.

    It is ``generate`` within ``PROCTOR_CACHE_DIR``, else within ``proctor`` of ``INSPECT_CACHE_DIR``, of
    ``XDG_CACHE_HOME`` or of the home's ``.cache``.

    Args:
        model: its name, whose every part is made a name of a folder within the cache.
    """
    if named := environ("PROCTOR_CACHE_DIR"):
        root = Path(named)
    elif shared := environ("INSPECT_CACHE_DIR") or environ("XDG_CACHE_HOME"):
        root = Path(shared) / "proctor"
    else:
        root = Path.home() / ".cache" / "proctor"
    return root.joinpath("generate", *(_folder(part) for part in model.split("/") if part))


def _folder(part: str) -> str:
    quoted = quote(part, safe="@:+=, ")
    return quoted.replace(".", "%2E") if set(quoted) == {"."} else quoted


def cache_clear(model: str = "") -> bool:
    """Remove all answers, or those of one model; whether there were any."""
    removed = False
    for file in _files([model] if model else []):
        with suppress(OSError):
            file.unlink()
            removed = True
    return removed


def cache_size(subdirs: Sequence[str] = (), files: Sequence[Path] = ()) -> list[tuple[str, int]]:
    """Bytes of answers by model.

    Args:
        subdirs: names of models; default all. files: count these files and no others.
    """
    sizes: dict[str, int] = {}
    for file in files if files and not subdirs else _files(subdirs):
        with suppress(OSError):
            size = file.stat().st_size
            name = model_of(file)
            sizes[name] = sizes.get(name, 0) + size
    return sorted(sizes.items())


def cache_list_expired(filter_by: Sequence[str] = ()) -> list[Path]:
    """The files whose answers are too old to be used, and those that are damaged.

    Args:
        filter_by: names of models; default all.
    """
    now = utc_now()
    return [file for file in _files(filter_by) if (data := _read(file)) is None or _expired(data, now)]


def cache_prune(files: Sequence[Path] = ()) -> None:
    """Remove files of answers that are too old.

    Args:
        files: default those of `cache_list_expired`; files that are none of the cache's stay.
    """
    root = cache_path().resolve()
    for file in files or cache_list_expired():
        if file.suffix == SUFFIX and root in file.resolve().parents:
            with suppress(OSError):
                file.unlink()


def model_of(file: Path) -> str:
    """The model whose answer a file of the cache is."""
    from urllib.parse import unquote

    try:
        parts = file.parent.relative_to(cache_path()).parts
    except ValueError:
        return str(file.parent)
    return "/".join(map(unquote, parts))


def _files(models: Sequence[str]) -> Iterator[Path]:
    """The files of answers of some models, or of all; links out of the cache are not followed."""
    for root in [cache_path(model) for model in models] or [cache_path()]:
        for folder, _, names in os.walk(root):
            yield from (Path(folder) / name for name in sorted(names) if name.endswith(SUFFIX))


def _read(path: Path) -> dict[str, Any] | None:
    try:
        data = msgspec.json.decode(path.read_bytes())
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) and data.get("format") == FORMAT and "output" in data else None


def _expired(data: Mapping[str, Any], now: datetime) -> bool:
    until = data.get("expiry")
    try:
        return until is not None and datetime.fromisoformat(until) <= now
    except (ValueError, TypeError):
        return True
