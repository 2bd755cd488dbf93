"""Models by the role they play, such as ``grader``: from names and mappings to `Model` objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proctor.errors import OptionError, UsageError
from proctor.evaluation.options import with_source
from proctor.log.records import EvalModelConfig
from proctor.model import GenerateConfig, Model, get_model
from proctor.model.config import public_config
from proctor.runtime.settings import Resolved
from proctor.scorer.results import loggable

Roles = Mapping[str, Model | Sequence[Model]]


def made_roles(said: Resolved[Mapping[str, Any] | None] | None) -> dict[str, Model | Sequence[Model]]:
    """The models that somebody names by role; none when nothing is said.

    A role is given a name (``provider/model``), a `Model`, a mapping (``{model: provider/model, temperature: 0}``) or a
    list of these. Each role has a `Model` of its own, so that what the roles use is told apart.

    Raises:
        UsageError: a role's model cannot be made; the text names where it came from.
    """
    found: dict[str, Model | Sequence[Model]] = {}
    if said is None or said.value is None:
        return found
    for role, given in said.value.items():
        try:
            if not isinstance(given, (list, tuple)):
                found[role] = _made(role, given)
            elif given:
                found[role] = [_made(role, each) for each in given]
            else:
                raise OptionError(f"model_roles: the list of models for {role} is empty")
        except UsageError as error:
            raise with_source(error, said.source) from None
    return found


def _made(role: str, given: Any) -> Model:
    if isinstance(given, Model):
        return given.with_config(given.config, role=role)
    options = dict(given) if isinstance(given, Mapping) else {"model": given}
    name, base_url = options.pop("model", None), options.pop("base_url", None)
    arguments = options.pop("model_args", {})
    if not isinstance(name, str) or not isinstance(arguments, Mapping):
        raise OptionError(
            f"model_roles: {role} needs a model's name (provider/model), or a mapping with one as in "
            "{model: provider/model, temperature: 0}"
        )
    config = GenerateConfig.from_options(options)
    made = get_model(name, config=config, base_url=base_url, memoize=False, **arguments)
    return made.with_config(config, role=role)


def logged_roles(roles: Roles) -> dict[str, Any] | None:
    """The models by role as a log holds them."""
    if not roles:
        return None
    return {
        role: _logged(models) if isinstance(models, Model) else [_logged(each) for each in models]
        for role, models in roles.items()
    }


def _logged(model: Model) -> EvalModelConfig:
    return EvalModelConfig(
        model=str(model), config=public_config(model.config), base_url=model.base_url, args=loggable(model.public_args)
    )
