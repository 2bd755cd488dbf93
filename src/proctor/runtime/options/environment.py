"""What the environment says of an evaluation: every option of the table, and which variable said it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from proctor.errors import OptionError
from proctor.runtime.options.option import Option
from proctor.runtime.options.table import OPTIONS
from proctor.runtime.settings import Resolved, environ, eval_option

SEVERAL: Final = re.compile(r"\s+(?=[\w.-]+=)")
"""Between two ``name=value`` in one variable; a value may hold spaces."""


def said_in_environment(options: Iterable[Option] = OPTIONS) -> dict[str, Resolved[Any]]:
    """The options that environment variables set, by parameter of `eval`.

    ``PROCTOR_EVAL_<NAME>`` is read first, then ``INSPECT_EVAL_<NAME>``, then what `Option.variables` lists; an empty
    one counts as unset. ``…_NO_<NAME>`` turns a switch off.

    Raises:
        OptionError: a value cannot be read, or two contradict each other; the text names the variable.
    """
    found: dict[str, Resolved[Any]] = {}
    for option in options:
        said = _said(option)
        if said is None or said.value is None:
            continue
        before = found.get(option.parameter)
        if before is not None and before.value != said.value:
            raise OptionError(
                f"{option.parameter} is {before.value!r} by {before.source} and {said.value!r} by {said.source}; "
                "unset one of them"
            )
        found[option.parameter] = said
    return found


def _said(option: Option) -> Resolved[Any] | None:
    text, source = eval_option(option.name)
    for variable in option.variables if text is None else ():
        if (text := environ(variable)) is not None:
            source = f"environment variable {variable}"
            break
    if text is not None:
        return Resolved(option.value(SEVERAL.split(text) if option.form == "many" else text, source=source), source)
    if option.form == "switch":
        text, source = eval_option(f"no-{option.name}")
        if text is not None:
            return Resolved(not option.value(text, source=source), source)
    return None
