"""The options of an evaluation, one row each: flags, help and environment variables are made from this table.

Each row names the parameter of `eval` that it sets, so that Python, command line and environment cannot drift apart: a
test compares the table with the signature of `eval` and with the fields of `GenerateConfig`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from attrs import define, field

from proctor.runtime.options import values
from proctor.runtime.options.option import Option

WITHOUT_FLAG: Final = frozenset({"tasks", "solver", "signals", "response_schema", "modalities", "batch"})
"""Parameters of `eval` that no flag sets: the argument itself, and objects of Python."""
AWAITED: Final = frozenset[str]()
"""Parameters that `eval` does not have yet; their flags are not offered until it does."""
COMMAND_LINE_ONLY: Final = frozenset({"log_level", "dry_run", "json"})
"""What the command line does itself."""
REDUCER: Final = "epochs_reducer"
"""Set by a flag and a variable of its own; in Python it is the second argument of `Epochs`."""


@define
class _Group:
    """Rows under one heading of the help; of a `grid` the numbers and words may be given as lists."""

    title: str
    grid: bool = False
    rows: list[Option] = field(factory=list)

    def add(self, name: str, help: str, read: Callable[[Any], Any] = str, metavar: str = "TEXT", **more: Any) -> None:
        parameter = more.pop("parameter", name.replace("-", "_"))
        self.rows.append(
            Option(name=name, help=help, read=read, metavar=metavar, group=self.title, parameter=parameter, **more)
        )

    def whole(
        self, name: str, help: str, *, least: int | None = 1, metavar: str = "N", grid: bool | None = None
    ) -> None:
        self.add(name, help, values.whole(least), metavar, grid=self.grid if grid is None else grid)

    def real(self, name: str, help: str) -> None:
        self.add(name, help, values.real, "X", grid=self.grid)

    def switch(self, name: str, help: str) -> None:
        self.add(name, help, values.truth, "", form="switch")

    def many(self, name: str, help: str, metavar: str, **more: Any) -> None:
        self.add(name, help, values.pairs, metavar, form="many", **more)

    def word(self, name: str, *allowed: str) -> None:
        self.add(name, f"One of {', '.join(allowed)}.", values.one_of(*allowed), "WORD", grid=self.grid)


def _run() -> list[Option]:
    g = _Group("Models and tasks")
    g.add("model", "Models to evaluate: provider/model, several with commas between them.", metavar="MODEL,...")
    g.add("model-base-url", "Where the models' API is.", metavar="URL")
    g.many("model-args", "An argument of the model's provider; repeatable.", "NAME=VALUE", short="M")
    g.many(
        "model-role",
        "A model for a role: grader=provider/model, or grader={model: provider/model, temperature: 0}; repeatable.",
        "ROLE=MODEL",
        parameter="model_roles",
    )
    g.many("task-args", "An argument of the task function; repeatable.", "NAME=VALUE", short="T")
    g.add("sandbox", "Where tools run: a type of sandbox, or its type and configuration.", metavar="TYPE[:CONFIG]")
    g.switch("sandbox-cleanup", "Remove sandboxes when their samples are over (yes).")
    g.add("tags", "Tags for the logs.", values.words, "TAG,...")
    g.many("metadata", "Metadata for the logs; repeatable.", "NAME=VALUE")
    return g.rows


def _samples() -> list[Option]:
    g = _Group("Samples")
    g.add("limit", "Only the first N samples, or those numbered A to B, from 1.", values.sample_range, "N|A-B")
    g.add("sample-id", "Only the samples with these ids.", values.words, "ID,...")
    shuffle = values.truth_or(values.whole(), "true, false or a seed")
    g.add("sample-shuffle", "Shuffle the samples; with a seed, always alike.", shuffle, "[SEED]", bare="true")
    g.whole("epochs", "How often each sample is run (1).")
    g.add(
        "epochs-reducer",
        "How a sample's scores over its epochs become one: mean, median, mode, max, at_least_N, pass_at_N.",
        values.words,
        "NAME,...",
    )
    g.switch("score", "Score the samples (yes).")
    return g.rows


def _at_once() -> list[Option]:
    g = _Group("How much at once")
    g.whole("max-tasks", "Tasks at once; by default 1, with several models as many as there are models.")
    g.whole("max-samples", "Samples of one task at once; by default one more than its model's connections.")
    g.whole("max-total-samples", "Samples of all tasks at once.")
    text = "Calls to one model at once; a number switches adaptive pacing off."
    g.whole("max-connections", text, grid=True)
    bounds = values.truth_or(_bounds, "true, false, a number, min-max or min-start-max")
    text = "Adaptive pacing: false, a maximum, min-max or min-start-max."
    g.add("adaptive-connections", text, bounds, "BOUNDS", grid=True)
    text = "Calls to one model a minute; 0: no quota; by default learned."
    g.add("requests-per-minute", text, values.rate, "N")
    text = "Tokens of one model a minute, 90k or 1m too; 0: no quota; by default learned."
    g.add("tokens-per-minute", text, values.rate, "N")
    g.whole("max-subprocesses", "Child processes at once; by default the number of processors.")
    g.whole("max-sandboxes", "Sandboxes of one kind at once; by default the kind's own number.")
    text = "MB of a task's dataset that are held; what passes it waits in a temporary file. By default all is held."
    g.whole("max-dataset-memory", text, metavar="MB")
    return g.rows


def _limits() -> list[Option]:
    g = _Group("Limits of a sample")
    g.whole("message-limit", "Messages.")
    g.add("token-limit", "Tokens; 500k and output:1m can be written.", values.tokens, "[TYPE:]N")
    g.whole("turn-limit", "Answers of models.")
    g.add("time-limit", "Seconds from its start.", values.positive, "SECONDS")
    g.add("working-limit", "Seconds of work, without waiting for a turn or a retry.", values.positive, "SECONDS")
    g.add("cost-limit", "Dollars.", values.positive, "X")
    return g.rows


def _budgets() -> list[Option]:
    g = _Group("Budgets of the whole run")
    g.add("max-total-tokens", "Tokens; when they are used up no further sample starts.", values.count, "N")
    g.add("max-total-cost", "Dollars.", values.positive, "X")
    g.add("max-run-time", "Seconds.", values.positive, "SECONDS")
    text = "Prices of models, a JSON file: {model: {input, output}}, in dollars per million tokens."
    g.add("model-cost-config", text, str, "FILE")
    return g.rows


def _errors() -> list[Option]:
    g = _Group("Errors")
    threshold = values.truth_or(_threshold, "true, false, a share below 1 or a count")
    text = "When samples' errors end a task: true (default) at the first, false never, above a share or a count."
    g.add("fail-on-error", text, threshold, "[X]", bare="true")
    text = "Go on whatever samples fail."
    g.add("no-fail-on-error", text, _never_failing, "", bare="true", parameter="fail_on_error")
    g.switch("continue-on-fail", "Judge --fail-on-error only when all samples have run.")
    again = "How often a sample that failed is run again (0; the flag alone: 1)."
    g.add("retry-on-error", again, _retries, "[N]", bare="1")
    g.switch("score-on-error", "Score what there is of a sample that failed.")
    g.whole("max-retries", "How often a model call is tried again; by default without end.", least=0, grid=True)
    g.whole("timeout", "For a model call with its retries and waits.", metavar="SECONDS", grid=True)
    g.whole("attempt-timeout", "For one attempt of a model call (600).", metavar="SECONDS", grid=True)
    g.whole("stream-idle-timeout", "Between two pieces of a streamed answer.", metavar="SECONDS", grid=True)
    return g.rows


def _logs() -> list[Option]:
    g = _Group("Logs and display")
    g.add("log-dir", "Where the logs go (./logs).", str, "DIR", variables=("PROCTOR_LOG_DIR", "INSPECT_LOG_DIR"))
    formats = values.one_of("eval", "json")
    names = ("PROCTOR_LOG_FORMAT", "INSPECT_LOG_FORMAT")
    g.add("log-format", "Format of the logs (eval).", formats, "eval|json", variables=names)
    g.switch("log-samples", "Keep the samples in the logs (yes).")
    g.switch("log-images", "Keep the data of images, sound and film in the logs (yes).")
    g.whole("log-buffer", "Records that may wait for a log to be written.")
    levels = values.one_of("debug", "trace", "http", "info", "warning", "error", "critical", "notset")
    names = ("PROCTOR_LOG_LEVEL", "INSPECT_LOG_LEVEL")
    g.add("log-level", "Least level of the messages shown (warning).", levels, "LEVEL", variables=names)
    names = ("PROCTOR_LOG_LEVEL_TRANSCRIPT", "INSPECT_LOG_LEVEL_TRANSCRIPT")
    least = values.one_of("debug", "trace", "http", "sandbox", "info", "warning", "error", "critical")
    what = "Least level of the messages that are events of the sample that logs them (info)."
    g.add("log-level-transcript", what, least, "LEVEL", variables=names)
    names = ("PROCTOR_DISPLAY", "INSPECT_DISPLAY")
    g.add("display", "What is shown: rich on a terminal, else plain.", str, "rich|plain|log|none", variables=names)
    names = ("PROCTOR_ASYNC_BACKEND", "INSPECT_ASYNC_BACKEND")
    backends = values.one_of("asyncio", "trio")
    g.add("async-backend", "The event loop (asyncio).", backends, "asyncio|trio", variables=names)
    g.whole("runtime-seed", "Seed of proctor's own chance and ids; by default drawn.", least=None)
    g.switch("dry-run", "Show what would be run, and run nothing.")
    g.switch("json", "With --dry-run: as JSON.")
    return g.rows


def _generation() -> list[Option]:
    g = _Group("Generation", grid=True)
    g.whole("max-tokens", "Tokens of an answer.")
    g.add("system-message", "Put before the input.")
    g.real("temperature", "Sampling temperature.")
    g.real("top-p", "Nucleus sampling.")
    g.whole("top-k", "Sample from the k most likely tokens.", least=None)
    g.whole("seed", "Seed of the model's sampling.", least=None)
    g.real("frequency-penalty", "Penalty on repeated tokens, -2 to 2.")
    g.real("presence-penalty", "Penalty on tokens that appeared, -2 to 2.")
    g.whole("best-of", "Answers made by the server, the best of which is returned.")
    g.whole("num-choices", "Answers per call.")
    g.switch("logprobs", "Return log probabilities.")
    g.whole("top-logprobs", "Most likely tokens returned at each place.", least=0)
    g.whole("prompt-logprobs", "The same for the prompt.")
    g.add("stop-seqs", "Texts at which an answer ends.", values.words, "TEXT,...")
    g.add("logit-bias", "Biases of tokens, -100 to 100.", values.token_biases, "TOKEN=X,...")
    g.switch("parallel-tool-calls", "Let the model call several tools at once.")
    g.switch("internal-tools", "Use a model's own implementations of tools.")
    g.whole("max-tool-output", "Bytes of a tool's output that are kept.", least=0)
    prompt = values.truth_or(values.one_of("auto"), "auto, true or false")
    g.add("cache-prompt", "The provider's prompt cache.", prompt, "auto|true|false", grid=True)
    kept = values.truth_or(values.lifetime, "true, false or a time as 12h")
    g.add("cache", "Use answers again that were given before; for a week, or for this time.", kept, "true|false|12h")
    g.add("fallback-models", "Models tried when one refuses.", values.words, "MODEL,...")
    g.switch("fail-on-refusal", "A refused request is an error of its sample.")
    g.add("extra-headers", "Headers added to each request.", values.mapping, "{...}")
    g.add("extra-body", "Fields added to the body of each request.", values.mapping, "{...}")
    return g.rows


def _reasoning() -> list[Option]:
    g = _Group("Reasoning models", grid=True)
    g.whole("reasoning-tokens", "Tokens for reasoning.", least=0)
    g.word("reasoning-effort", "none", "minimal", "low", "medium", "high", "xhigh", "max")
    g.word("reasoning-mode", "standard", "pro")
    g.word("reasoning-summary", "none", "concise", "detailed", "auto")
    g.word("reasoning-history", "none", "all", "last", "auto")
    g.word("effort", "low", "medium", "high", "xhigh", "max")
    g.word("verbosity", "low", "medium", "high")
    return g.rows


def _bounds(text: str) -> int | str:
    parts = text.split("-")
    if not 1 <= len(parts) <= 3 or not all(part.strip().isdecimal() for part in parts):
        raise ValueError
    return int(text) if len(parts) == 1 else text


def _threshold(text: str) -> bool | float:
    number = values.real(text)
    if number < 0:
        raise ValueError
    return number or False


def _never_failing(text: str) -> bool | None:
    return False if values.truth(text) else None


def _retries(text: str) -> int:
    wanted = "a whole number of at least 0"
    return int(values.truth_or(values.whole(0), wanted)(text))


ROWS: Final = (
    *_run(),
    *_samples(),
    *_at_once(),
    *_limits(),
    *_budgets(),
    *_errors(),
    *_logs(),
    *_generation(),
    *_reasoning(),
)
OPTIONS: Final = tuple(option for option in ROWS if option.parameter not in AWAITED)
