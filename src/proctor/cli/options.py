"""An option of ``proctor eval``, and how flags and environment variables become the arguments of `eval`.

Every value arrives as text and is read by one function, for the flag and for the variable. What a value means (a name
that exists, a range that depends on the run) is judged by the engine, once for all callers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from attrs import field, frozen

from proctor.errors import OptionError

Form = Literal["text", "switch", "many"]
Reader = Callable[[str], tuple[str | None, str]]


@frozen(kw_only=True)
class Option:
    """One flag of ``proctor eval``.

    Attributes:
        name: the flag without its dashes, words joined by ``-``.
        parameter: the parameter of `eval` it sets.
        help, group: for ``--help``.
        read: makes the value from the text (from the list of texts where the form is ``many``); its `ValueError`
            completes "must be …".
        form: ``text`` takes one value, ``switch`` is ``--name`` or ``--no-name``, ``many`` may be given repeatedly.
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
            return self.read(given)
        except ValueError as error:
            shown = " ".join(given) if isinstance(given, list | tuple) else given
            came_from = f" (from {source})" if source else ""
            raise OptionError(f"{self.flag} must be {error}, not {shown!r}{came_from}") from None


def from_flags(options: Iterable[Option], given: Mapping[str, Any]) -> dict[str, Any]:
    """What the flags say, by `Option.key`.

    Args:
        given: what the parser found, by `Option.key`; None and an empty list are "not given". Switches are bools.

    Raises:
        OptionError: a value cannot be read.
    """
    found: dict[str, Any] = {}
    for option in options:
        text = given.get(option.key)
        if text is not None and (option.form != "many" or text):
            found[option.key] = text if option.form == "switch" else option.value(text)
    return found


def from_environment(options: Iterable[Option], read: Reader, environ: Callable[[str], str | None]) -> dict[str, Any]:
    """What environment variables say, by `Option.key`.

    Args:
        read: the text and the source of the variables of an option (`proctor.runtime.settings.eval_option`).
        environ: the text of a variable by its full name.

    Raises:
        OptionError: a value cannot be read; the text names the variable.
    """
    found: dict[str, Any] = {}
    for option in options:
        text, source = read(option.name)
        for variable in option.variables if text is None else ():
            if (text := environ(variable)) is not None:
                source = f"environment variable {variable}"
                break
        if text is not None:
            found[option.key] = option.value(text.split() if option.form == "many" else text, source=source)
        elif option.form == "switch":
            text, source = read(f"no-{option.name}")
            if text is not None:
                found[option.key] = not option.value(text, source=source)
    return found


def arguments(options: Iterable[Option], flags: Mapping[str, Any], environment: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `eval` that flags and environment stand for; a flag goes before a variable.

    Raises:
        OptionError: flags that contradict each other, or of which one needs another.
    """
    parameters = {option.key: option.parameter for option in options}
    said = {parameters[key] for key in flags}
    # `epochs` is set by two options that complete each other; elsewhere a flag silences each variable of its parameter.
    found = {
        key: value for key, value in environment.items() if parameters[key] not in said or parameters[key] == "epochs"
    }
    found |= flags
    reducers = found.pop("epochs_reducer", None)
    if reducers is not None:
        if "epochs" not in found:
            raise OptionError("--epochs-reducer needs --epochs: say how often each sample is to be run")
        from proctor.evaluation.task import Epochs

        found["epochs"] = Epochs(found["epochs"], reducers)
    if found.pop("no_fail_on_error", False):
        if found.get("fail_on_error", False) is not False:
            raise OptionError("--fail-on-error and --no-fail-on-error contradict each other; give one of them")
        found["fail_on_error"] = False
    return {parameters[key]: value for key, value in found.items()}
