"""What a response or an exception is taken for."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import anyio
import httpx
import pytest

from proctor.errors import ModelError, ModelGivenUp, RateLimitError, TransientModelError
from proctor.model.api import RetryDecision
from proctor.model.failures import (
    Kind,
    Unreachable,
    classify,
    error_words,
    retry_after,
    scrub,
    status_error,
    wait_asked,
)
from proctor.model.providers.mock import MockAPI


def error(status: int, body: Any = "", **headers: str) -> ModelError:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = httpx.Headers({name.replace("_", "-"): value for name, value in headers.items()})
    return status_error(status, named, data, model="m", url="http://x/v1", secrets=["sk-canary"])


def said(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (429, said("slow down"), RateLimitError),
        (529, said("overloaded", type="overloaded_error"), RateLimitError),
        (503, said("busy", type="overloaded_error"), RateLimitError),
        (400, said("slow", code="rate_limit_exceeded"), RateLimitError),
        (408, "", TransientModelError),
        (500, said("oops"), TransientModelError),
        (503, b"<html>bad gateway</html>", TransientModelError),
        (504, b"", TransientModelError),
        (401, said("wrong key"), ModelGivenUp),
        (403, said("not allowed"), ModelGivenUp),
        (429, said("You exceeded your current quota", code="insufficient_quota"), ModelGivenUp),
        (404, said("The model `x` does not exist", code="model_not_found"), ModelGivenUp),
        (404, said("model 'x' not found, try pulling it first"), ModelGivenUp),
        (400, said("unknown model x"), ModelGivenUp),
    ],
)
def test_statuses_are_sorted_into_the_kinds(status: int, body: Any, kind: type[ModelError]) -> None:
    made = error(status, body)
    assert type(made) is kind
    assert made.status == status
    assert str(status) in str(made)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, said("bad request")),
        (404, said("no recorded answer of model 'x'")),
        (404, b"404 page not found"),
        (405, b""),
        (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}),
    ],
)
def test_other_statuses_are_final_for_the_one_call(status: int, body: Any) -> None:
    made = error(status, body)
    assert type(made) is ModelError
    if status in {404, 405}:
        assert "base URL" in str(made)


def test_keys_are_taken_out_of_what_a_server_says() -> None:
    made = error(401, said("Incorrect API key provided: sk-canary."))
    assert "sk-canary" not in str(made)
    assert "[key]" in str(made)
    foreign = ValueError("bad key sk-canary", 3)
    scrub(foreign, ["sk-canary"])
    assert foreign.args == ("bad key [key]", 3)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"error":{"message":"m","code":"c","type":"t"}}', ("m", "c")),
        (b'{"error":{"message":"m","code":7,"type":"t"}}', ("m", "t")),
        (b'{"error":"plain"}', ("plain", "")),
        (b'{"detail":"d"}', ("d", "")),
        (b"[1]", ("[1]", "")),
        (b"<html>\n  oops</html>", ("<html> oops</html>", "")),
        (b"\xff\xfe", ("\ufffd\ufffd", "")),
        (b"", ("", "")),
    ],
)
def test_the_words_of_an_error_are_found_in_the_usual_shapes(body: bytes, expected: tuple[str, str]) -> None:
    assert error_words(body) == expected


def test_long_words_are_cut() -> None:
    assert len(error_words(b"x" * 10_000)[0]) < 700


NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": " 7 "}, 7.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
        ({"retry-after-ms": "-1", "retry-after": "9"}, 9.0),
        ({"retry-after": "89"}, 89.0),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "0"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1e400"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "99999999999999 Jan"}, None),
        ({}, None),
        ({"retry-after": format_datetime(NOW + timedelta(seconds=20), usegmt=True), "date": format_datetime(NOW)}, 20),
        (
            {"retry-after": format_datetime(NOW - timedelta(seconds=20), usegmt=True), "date": format_datetime(NOW)},
            None,
        ),
        ({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}, None),
    ],
)
def test_the_wait_that_a_response_asks_for(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after(headers) == expected


def test_a_date_without_the_responses_own_counts_from_now() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    wait = retry_after({"retry-after": soon})
    assert wait is not None
    assert 95 < wait <= 100


class Foreign(MockAPI):
    """A provider of somebody else's, with an opinion."""

    def __init__(self, opinion: Any = False) -> None:
        super().__init__("x")
        self.opinion = opinion

    def should_retry(self, ex: Exception) -> Any:
        return self.opinion


def with_status(status: int, **more: Any) -> Exception:
    made = RuntimeError("vendor")
    made.__dict__.update(status_code=status, **more)
    return made


@pytest.mark.parametrize(
    ("opinion", "raised", "kind"),
    [
        (False, ValueError("x"), Kind.FINAL),
        (True, ValueError("x"), Kind.TRANSIENT),
        (True, with_status(429), Kind.RATE_LIMIT),
        (RetryDecision.rate_limit(), ValueError("x"), Kind.RATE_LIMIT),
        (RetryDecision.transient(), with_status(400), Kind.TRANSIENT),
        (RetryDecision.no(), ValueError("x"), Kind.FINAL),
        (False, with_status(429), Kind.RATE_LIMIT),
        (False, with_status(500), Kind.TRANSIENT),
        (False, with_status(408), Kind.TRANSIENT),
        (False, with_status(401), Kind.GIVE_UP),
        (False, with_status(400), Kind.FINAL),
        (False, ConnectionResetError(), Kind.TRANSIENT),
        (False, TimeoutError(), Kind.TRANSIENT),
        (False, anyio.BrokenResourceError(), Kind.TRANSIENT),
        (False, httpx.ReadError("x"), Kind.TRANSIENT),
        (False, FileNotFoundError("x"), Kind.FINAL),
        (True, ModelError("ours goes first"), Kind.FINAL),
        (False, Unreachable("x"), Kind.UNREACHABLE),
        (False, TransientModelError("x"), Kind.TRANSIENT),
        (False, RateLimitError("x"), Kind.RATE_LIMIT),
        (False, ModelGivenUp("x"), Kind.GIVE_UP),
    ],
)
def test_exceptions_are_sorted_into_the_kinds(opinion: Any, raised: Exception, kind: Kind) -> None:
    assert classify(raised, Foreign(opinion)) is kind


def test_the_wait_is_found_in_a_vendors_exception_too() -> None:
    assert wait_asked(with_status(429, response=SimpleNamespace(headers={"retry-after": "4"}))) == 4
    assert wait_asked(RateLimitError("x", retry_after=2)) == 2
    assert wait_asked(ValueError("x")) is None
