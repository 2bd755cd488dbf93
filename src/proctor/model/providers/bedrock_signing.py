"""AWS credentials, signatures and event streams, by botocore. It is imported at the first call, in a worker thread.

Finding credentials may read files and ask a metadata server, and so may refreshing them: neither happens in the loop.
Signing with credentials at hand takes 0.2 ms and does.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, Final

from attrs import define, frozen

from proctor.errors import ModelGivenUp, UsageError

EXTRA: Final = "pip install 'proctor[bedrock]'"
SERVICE: Final = "bedrock"  # as signatures name it
EVENT_STREAM: Final = "application/vnd.amazon.eventstream"


@frozen(kw_only=True)
class Account:
    """Where credentials and region are looked for; what is None is left to the usual AWS variables and files.

    Attributes:
        shown: the model, named in errors.
    """

    shown: str
    profile: str | None = None
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    session_token: str | None = None


def require_botocore(shown: str) -> None:
    """Raise `UsageError` where botocore is not installed; it says how to install it."""
    if importlib.util.find_spec("botocore") is None:
        raise UsageError(f"{shown} needs the package botocore, which is not installed: {EXTRA}")


@define(eq=False)
class Signer:
    """Signs requests of one account in one region. Made by `find_signer`.

    Attributes:
        credentials: botocore's, None for a server that is asked with a bearer token.
    """

    region: str
    credentials: Any = None

    def blocks(self) -> bool:
        """Whether the next signature must refresh the credentials first."""
        needed = getattr(self.credentials, "refresh_needed", None)
        return needed is not None and bool(needed())

    def refresh(self) -> Exception | None:
        """Refresh the credentials, in a worker thread. The error is returned: a caller that has left loses it."""
        try:
            self.credentials.get_frozen_credentials()
        except Exception as error:
            return error
        return None

    def headers(self, url: str, body: bytes) -> dict[str, str]:
        """The headers that sign a request.

        Args:
            url: with its path percent-encoded once; the signature encodes it once more.
        """
        request = _module("awsrequest").AWSRequest("POST", url, data=body, headers={"Content-Type": "application/json"})
        signing = _module("auth").SigV4Auth(self.credentials.get_frozen_credentials(), SERVICE, self.region)
        signing.add_auth(request)
        return {str(name): str(value) for name, value in request.headers.items()}


def find_signer(account: Account, signs: bool) -> Signer | Exception:
    """Look for the region, and for credentials where requests are signed. To be run in a worker thread.

    Returns:
        The signer, or the error: a caller that has left loses it, and it is no fault of the thread's.
    """
    try:
        session = _module("session").Session(profile=account.profile)
        region = account.region or session.get_config_variable("region")
        if not region:
            return ModelGivenUp(
                f"{account.shown}: no AWS region. Set AWS_REGION, name a profile that has one (AWS_PROFILE), or pass "
                "-M region_name=…"
            )
        if not signs:
            return Signer(region)
        if account.access_key:
            session.set_credentials(account.access_key, account.secret_key, account.session_token)
        credentials = session.get_credentials()
        if credentials is None:
            return ModelGivenUp(
                f"{account.shown}: no AWS credentials. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                "AWS_PROFILE, or AWS_BEARER_TOKEN_BEDROCK"
            )
        credentials.get_frozen_credentials()
    except _module("exceptions").BotoCoreError as error:
        return ModelGivenUp(f"{account.shown}: AWS credentials: {error}")
    return Signer(region, credentials)


def endpoint(region: str) -> str:
    """The public base URL in a region."""
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"https://bedrock-runtime.{region}.{suffix}"


def event_buffer() -> Any:
    """A decoder of event streams: ``add_data`` takes bytes, iterating gives whole messages, checksums verified."""
    return _module("eventstream").EventStreamBuffer()


def event_stream_error() -> type[Exception]:
    """The base of what the decoder raises for bytes that are no event stream."""
    error: type[Exception] = _module("eventstream").ParserError
    return error


def _module(name: str) -> Any:
    """A module of botocore, which has no types."""
    return importlib.import_module(f"botocore.{name}")
