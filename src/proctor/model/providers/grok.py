"""``grok/<model>``: xAI's models, by the Responses API; chat completions with ``responses_api=false``.

xAI keeps responses unless told not to, so ``store`` is always sent.
"""

from __future__ import annotations

import re
from typing import Any, Final

from attrs import evolve

from proctor.model.config import GenerateConfig
from proctor.model.providers.openai_compatible import CompatibleAPI
from proctor.model.providers.openai_responses import Ask
from proctor.model.providers.vendors import Vendor, vendor

# They reason, or do not, without taking an effort: it is refused (docs.x.ai/docs/guides/reasoning).
NO_EFFORT: Final = re.compile(r"^grok-4(-latest|-0709.*)?$|^grok-2|^grok-3(?!-mini)|^grok-code")
NO_REASONING: Final = re.compile(r"^grok-2|^grok-3(?!-mini)|non-reasoning")


class GrokAPI(CompatibleAPI):
    """A client of one model of xAI's."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        **model_args: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, config, row=vendor("grok"), **model_args)

    def ask(self, config: GenerateConfig) -> Ask:
        """What the model takes of a request to the Responses API."""
        ask = super().ask(config)
        reasons = NO_REASONING.search(self.sent_name) is None
        takes_effort = reasons and NO_EFFORT.search(self.sent_name) is None
        return evolve(ask, reasoning=reasons, effort=ask.effort if takes_effort else None, reasoning_text=False)

    def chat_row(self, config: GenerateConfig) -> Vendor:
        """The row without an effort where the model refuses it."""
        if NO_EFFORT.search(self.sent_name) is None:
            return self.row
        fields = {name: wire for name, wire in self.row.fields.items() if name != "reasoning_effort"}
        return evolve(self.row, fields=fields)
