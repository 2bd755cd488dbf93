"""Quota headers of every vendor become readings with the right dimension, numbers and window."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from proctor.model.pacing import Dimension, QuotaReading
from proctor.model.pacing.headers import named_dimension, quota_readings, seconds

REQUESTS, TOKENS = Dimension.REQUESTS, Dimension.TOKENS
INPUT, OUTPUT = Dimension.INPUT_TOKENS, Dimension.OUTPUT_TOKENS


def test_openai() -> None:
    headers = {
        "X-RateLimit-Limit-Requests": "500",
        "x-ratelimit-remaining-requests": "499",
        "x-ratelimit-reset-requests": "120ms",
        "x-ratelimit-limit-tokens": "30000",
        "x-ratelimit-remaining-tokens": "24000",
        "x-ratelimit-reset-tokens": "12s",
        "content-type": "application/json",
    }
    assert quota_readings(headers) == [
        QuotaReading(REQUESTS, 500, 499, pytest.approx(0.12), 60.0),
        QuotaReading(TOKENS, 30000, 24000, 12.0, 60.0),
    ]


def test_groq_counts_requests_by_the_day_which_only_the_reset_tells() -> None:
    headers = {
        "x-ratelimit-limit-requests": "1000",
        "x-ratelimit-remaining-requests": "942",
        "x-ratelimit-reset-requests": "1h23m31s",
        "x-ratelimit-limit-tokens": "6000",
        "x-ratelimit-remaining-tokens": "5997",
        "x-ratelimit-reset-tokens": "30ms",
    }
    requests, tokens = quota_readings(headers)
    assert requests == QuotaReading(REQUESTS, 1000, 942, 5011.0, 86400.0)
    assert tokens == QuotaReading(TOKENS, 6000, 5997, pytest.approx(0.03), 60.0)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"limit": "-1", "remaining": "-1", "reset": "0"}, []),
        ({"limit": "0", "remaining": "0", "reset": "0"}, []),
        ({"remaining": "79"}, []),
        ({"limit": "100", "remaining": "79", "reset": "55"}, [QuotaReading(TOKENS, 100, 79, 55.0, 60.0)]),
        ({"limit": "100", "remaining": "79", "renewalperiod": "10"}, [QuotaReading(TOKENS, 100, 79, None, 10.0)]),
        ({"limit": "a lot", "remaining": "79"}, []),
        ({"limit": "nan", "remaining": "inf"}, []),
    ],
)
def test_azure(headers: dict[str, str], expected: list[QuotaReading]) -> None:
    """It sends −1 and 0, sometimes only what remains, resets in whole seconds and periods of its own."""
    assert quota_readings({f"x-ratelimit-{name}-tokens": value for name, value in headers.items()}) == expected


def test_mistral_says_the_period_in_the_name_and_never_a_reset() -> None:
    headers = {
        "x-ratelimit-limit-req-minute": "60",
        "x-ratelimit-remaining-req-minute": "59",
        "x-ratelimit-limit-tokens-minute": "375000",
        "x-ratelimit-remaining-tokens-minute": "374970",
        "x-ratelimit-limit-tokens-month": "4000000000",
        "x-ratelimit-remaining-tokens-month": "3",
        "x-ratelimit-tokens-query-cost": "30",
    }
    assert quota_readings(headers) == [
        QuotaReading(REQUESTS, 60, 59, None, 60.0),
        QuotaReading(TOKENS, 375000, 374970, None, 60.0),
    ]


def test_mistral_of_old() -> None:
    headers = {
        "x-ratelimitbysize-limit-minute": "500000",
        "x-ratelimitbysize-remaining-minute": "499000",
        "ratelimitbysize-reset": "53",
    }
    assert quota_readings(headers) == [QuotaReading(TOKENS, 500000, 499000, 53.0, 60.0)]


ANTHROPIC = {
    "anthropic-ratelimit-requests-limit": "1000",
    "anthropic-ratelimit-requests-remaining": "847",
    "anthropic-ratelimit-requests-reset": "2025-10-19T00:14:09Z",
    "anthropic-ratelimit-input-tokens-limit": "50000",
    "anthropic-ratelimit-input-tokens-remaining": "32000",
    "anthropic-ratelimit-input-tokens-reset": "2025-10-19T00:14:22Z",
    "anthropic-ratelimit-output-tokens-limit": "8000",
    "anthropic-ratelimit-output-tokens-remaining": "8000",
    "anthropic-ratelimit-output-tokens-reset": "2025-10-19T00:14:00Z",
    "anthropic-ratelimit-tokens-limit": "58000",
    "anthropic-ratelimit-tokens-remaining": "40000",
    "anthropic-ratelimit-tokens-reset": "2025-10-19T00:14:22Z",
}


@pytest.mark.parametrize(
    ("date", "now"),
    [
        ("Sun, 19 Oct 2025 00:14:00 GMT", datetime(1999, 1, 1, tzinfo=UTC)),
        (None, datetime(2025, 10, 19, 0, 14, tzinfo=UTC)),
    ],
)
def test_anthropic_says_resets_as_dates(date: str | None, now: datetime) -> None:
    """They count from the response's own date; the sum of input and output is no limit of its own."""
    headers = ANTHROPIC if date is None else {**ANTHROPIC, "Date": date}
    assert quota_readings(headers, now=now) == [
        QuotaReading(REQUESTS, 1000, 847, 9.0, 60.0),
        QuotaReading(INPUT, 50000, 32000, 22.0, 60.0),
        QuotaReading(OUTPUT, 8000, 8000, 0.0, 60.0),
    ]


def test_a_workspace_of_anthropic_has_a_limit_of_its_own() -> None:
    headers = {**ANTHROPIC, "anthropic-ratelimit-tokens-limit": "20000", "anthropic-ratelimit-tokens-remaining": "7"}
    assert QuotaReading(TOKENS, 20000, 7, None, 60.0) in quota_readings(headers)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (
            {
                "RateLimit-Policy": '"burst";q=10;w=10, "daily";q=5000;w=86400',
                "RateLimit": '"burst";r=8;t=1, "daily";r=4998;t=69076',
            },
            [QuotaReading(REQUESTS, 10, 8, 1.0, 10.0), QuotaReading(REQUESTS, 5000, 4998, 69076.0, 86400.0)],
        ),
        (
            {"ratelimit-policy": '"fixed window";"api";q=3000;w=300', "ratelimit": '"api";r=0;t=52'},
            [QuotaReading(REQUESTS, 3000, 0, 52.0, 300.0)],
        ),
        (
            {
                "ratelimit-policy": '"t";q=9000;w=60;qu="tokens";pk=:a:, "c";q=5;qu="concurrent-requests"',
                "ratelimit": '"t";r=10, "c";r=2',
            },
            [QuotaReading(TOKENS, 9000, 10, None, 60.0)],
        ),
        (
            {"RateLimit": "limit=100, remaining=50, reset=30", "RateLimit-Policy": "100;w=60"},
            [QuotaReading(REQUESTS, 100, 50, 30.0, 60.0)],
        ),
        (
            {"RateLimit-Limit": "100, 100;w=10", "RateLimit-Remaining": "50", "RateLimit-Reset": "5"},
            [QuotaReading(REQUESTS, 100, 50, 5.0, 10.0)],
        ),
        ({"RateLimit": '"unknown";r=3'}, []),
        ({"RateLimit": "nonsense"}, []),
    ],
)
def test_the_drafts_of_the_ietf(headers: dict[str, str], expected: list[QuotaReading]) -> None:
    assert quota_readings(headers) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1s", 1.0), ("6m0s", 360.0), ("12ms", 0.012), ("1h23m31s", 5011.0), ("55", 55.0), ("7.66s", 7.66)],
)
def test_durations(text: str, expected: float) -> None:
    assert seconds(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", [None, "", "soon", "-3", "1s and more", "m5"])
def test_what_is_no_duration(text: str | None) -> None:
    assert seconds(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Rate limit reached for gpt-4 on tokens per min (TPM): Limit 10000, Used 9999", TOKENS),
        ("on requests per min. Limit: 3 / min", REQUESTS),
        ("would exceed your organization's rate limit of 50,000 input tokens per minute", INPUT),
        ("the rate limit of 8,000 output tokens per minute", OUTPUT),
        ("Number of concurrent connections has exceeded your rate limit", Dimension.CONCURRENCY),
        ("too many requests per minute or too many tokens per minute", None),
        ("slow down", None),
    ],
)
def test_the_limit_that_a_refusal_names(text: str, expected: Dimension | None) -> None:
    assert named_dimension(text) is expected
