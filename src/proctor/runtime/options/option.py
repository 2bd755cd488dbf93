"""An option of an evaluation, and how flags become parameters of `eval`.

Every value of a flag or an environment variable arrives as text and is read by one function, the same for both. What a
value means (a name that exists, a range that depends on the run) is judged by the engine, once for all callers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from attrs import field, frozen

from proctor.errors import OptionError

Form = Literal["text", "switch", "many"]


@frozen(kw_only=True)
class Option:
    """One row of the table.

    Attributes:
        name: the flag without its dashes, words joined by ``-``.
        parameter: the parameter of `eval` it sets.
        help, group: for ``--help``.
        read: makes the value from the text (from the list of texts where the form is ``many``), None for one that
            says nothing; its `ValueError` completes "must be …".
        form: ``text`` takes one value, ``switch`` is ``--name`` or ``--no-name``, ``many`` may be given repeatedly.
        grid: several values with commas between them make a list, which stands for a run with each.
        metavar: what stands for the value in the help.
        bare: the text that the flag alone stands for; None when it needs a value.
        short: the one letter by which it is known instead of its name.
        variables: environment variables read after ``PROCTOR_EVAL_<NAME>`` and ``INSPECT_EVAL_<NAME>``, in full.
    """

    name: str
    parameter: str
    help: str
    group: str
    read: Callable[[Any], Any] = str
    form: Form = "text"
    grid: bool = False
    metavar: str = "TEXT"
    bare: str | None = None
    short: str | None = None
    variables: tuple[str, ...] = field(default=())

    @property
    def flag(self) -> str:
        """As it is written: ``--max-tasks``, ``-T``."""
        return f"-{self.short}" if self.short else f"--{self.name}"

    @property
    def key(self) -> str:
        """Its name in Python: ``max_tasks``."""
        return self.name.replace("-", "_")

    def value(self, given: Any, *, source: str = "") -> Any:
        """The value that a text (or several) stands for.

        Args:
            source: where it was given, when not by this flag.

        Raises:
            OptionError: it cannot be read; the text says what can.
        """
        try:
            if self.grid and isinstance(given, str) and "," in given:
                return [self.read(part.strip()) for part in given.split(",")]
            return self.read(given)
        except ValueError as error:
            shown = " ".join(given) if isinstance(given, list | tuple) else given
            name, came_from = (self.key, f" (from {source})") if source else (self.flag, "")
            raise OptionError(f"{name} must be {error}, not {shown!r}{came_from}") from None


def from_flags(options: Iterable[Option], given: Mapping[str, Any]) -> dict[str, Any]:
    """What the flags say, by parameter of `eval`.

    Args:
        given: what the parser found, by `Option.key`; None and an empty list are "not given". Switches are bools.

    Raises:
        OptionError: a value cannot be read, or two flags contradict each other.
    """
    found: dict[str, tuple[Any, Option]] = {}
    for option in options:
        text = given.get(option.key)
        if text is None or (option.form == "many" and not text):
            continue
        value = text if option.form == "switch" else option.value(text)
        if value is None:
            continue
        before = found.get(option.parameter)
        if before is not None and before[0] != value:
            raise OptionError(f"{before[1].flag} and {option.flag} contradict each other; give one of them")
        found[option.parameter] = (value, option)
    return {name: value for name, (value, _) in found.items()}
