"""``azureai/<deployment>``: models of Azure AI, by chat completions."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote, urlsplit

from attrs import evolve

from proctor.model.config import GenerateConfig
from proctor.model.providers.openai_compatible import CompatibleAPI
from proctor.model.providers.openai_models import openai_model
from proctor.model.providers.vendors import Vendor, vendor
from proctor.runtime.settings import environ

API_VERSION: Final = "2024-05-01-preview"
SERVERLESS: Final = ("inference.ai.azure.com", "models.ai.azure.com")  # hosts that take the key as a bearer's
OPENAI_HOST: Final = "openai.azure.com"
MAX_TOKENS: Final = 2048  # of an answer of models other than Mistral's and OpenAI's, whose own default is small


class AzureAIAPI(CompatibleAPI):
    """A client of one model deployed on Azure AI.

    Args:
        model_name: the deployment, after an organization and a slash where that is wanted in logs.
        base_url: the endpoint: ``https://….services.ai.azure.com/models``, ``https://….openai.azure.com`` or its
            ``/openai/v1``.
        api_version: of Azure's API, for endpoints that have versions.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        api_version: str | None = None,
        **model_args: Any,
    ) -> None:
        deployment = model_name.rpartition("/")[2]
        super().__init__(
            model_name, base_url, api_key, config, row=vendor("azureai"), sent_name=deployment, **model_args
        )
        place = urlsplit(self.base_url or "")
        self.host, self.place = place.hostname or "", place.path.rstrip("/")
        self.api_version = api_version or environ("AZUREAI_API_VERSION") or API_VERSION

    def headers(self) -> dict[str, str]:
        """The key, in the header that the kind of endpoint wants it in."""
        if self.host.endswith(SERVERLESS):
            return {"Authorization": f"Bearer {self.api_key}"}
        return super().headers()

    def max_tokens(self) -> int | None:
        """A bound where the deployment's own is too small."""
        model = openai_model(self.sent_name, deployed=True)
        known = model.gpt or model.o_series or "mistral" in self.sent_name.lower()
        return None if known else MAX_TOKENS

    def chat_path(self) -> str:
        """Where chat completions are: by the kind of endpoint."""
        path = super().chat_path()
        if self.place.endswith("/v1"):
            return path
        if self.host.endswith(OPENAI_HOST) and not self.place:
            path = f"/openai/deployments/{quote(self.sent_name, safe='')}{path}"
        return f"{path}?api-version={self.api_version}"

    def chat_row(self, config: GenerateConfig) -> Vendor:
        """OpenAI's newer models have another name for the limit of tokens."""
        model = openai_model(self.sent_name, deployed=True)
        if not (model.o_series or (model.gpt and model.frontier)):
            return self.row
        return evolve(self.row, fields={**self.row.fields, "max_tokens": "max_completion_tokens"})
