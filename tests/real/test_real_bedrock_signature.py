"""Signatures of requests to Bedrock, against a server that works them out by itself, and boto3 as a second client.

The server has nothing of ours and nothing of botocore's: it follows the text of "Signature Version 4 signing process"
with the standard library. That it is right is proved by boto3, whose requests it takes; that it is strict, by requests
with one thing changed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import struct
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from proctor.errors import ModelGivenUp
from proctor.model import ChatMessageUser, GenerateConfig, get_model
from proctor.runtime import open_runtime
from proctor.testing import run_real

pytestmark = pytest.mark.real

botocore = pytest.importorskip("botocore")

ACCESS, SECRET, TOKEN, REGION = (
    "AKIDEXAMPLE",
    "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    "session/token+==",
    "eu-west-1",
)
MODELS = [
    "anthropic.claude-sonnet-4-5-20250929-v1:0",
    "arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/a1b2c3",
]
ANSWER = {
    "output": {"message": {"role": "assistant", "content": [{"text": "Grüße"}]}},
    "stopReason": "end_turn",
    "usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3},
    "metrics": {"latencyMs": 1},
}
EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("messageStart", {"role": "assistant"}),
    ("contentBlockDelta", {"delta": {"text": "Grüße"}, "contentBlockIndex": 0}),
    ("contentBlockStop", {"contentBlockIndex": 0}),
    ("messageStop", {"stopReason": "end_turn"}),
    ("metadata", {"usage": ANSWER["usage"], "metrics": {"latencyMs": 1}}),
]


def signature(key: str, when: str, region: str, text: str) -> str:
    """The signature of a text, by the chain of keys that the process prescribes."""
    step = f"AWS4{key}".encode()
    for part in (when[:8], region, "bedrock", "aws4_request"):
        step = hmac.new(step, part.encode(), hashlib.sha256).digest()
    return hmac.new(step, text.encode(), hashlib.sha256).hexdigest()


def why_refused(path: str, headers: dict[str, str], body: bytes) -> str | None:
    """What is wrong with a request's signature; None for a request that is signed right.

    Args:
        path: as it came over the wire. headers: names in lower case.
    """
    scheme, _, rest = headers.get("authorization", "").partition(" ")
    fields = dict(part.strip().split("=", 1) for part in rest.split(",") if "=" in part)
    when, token = headers.get("x-amz-date", ""), headers.get("x-amz-security-token")
    if scheme != "AWS4-HMAC-SHA256" or fields.get("Credential") != f"{ACCESS}/{when[:8]}/{REGION}/bedrock/aws4_request":
        return f"the scope is wrong: {headers.get('authorization')}"
    if abs(datetime.strptime(when, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC) - datetime.now(UTC)) > timedelta(minutes=5):
        return f"signed at {when}"
    names = fields["SignedHeaders"].split(";")
    wanted = {"host", "x-amz-date"} | ({"x-amz-security-token"} if token is not None else set())
    if names != sorted(names) or not wanted <= set(names):
        return f"these headers are signed: {names}"
    if token not in {None, TOKEN}:
        return "the session token is another"
    where, _, query = path.partition("?")
    canonical = "\n".join(
        [
            "POST",
            quote(where, safe="/-_.~"),  # each part once more, on top of what the wire has
            query,
            *(f"{name}:{' '.join(headers[name].split())}" for name in names),
            "",
            ";".join(names),
            hashlib.sha256(body).hexdigest(),
        ]
    )
    scope = f"{when[:8]}/{REGION}/bedrock/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", when, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    expected = signature(SECRET, when, REGION, text)
    return None if hmac.compare_digest(expected, fields.get("Signature", "")) else "the signature does not match"


def frame(kind: str, payload: dict[str, Any]) -> bytes:
    coded = b""
    for name, value in ((":message-type", "event"), (":event-type", kind), (":content-type", "application/json")):
        coded += bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
    data = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(coded) + len(data), len(coded))
    whole = prelude + struct.pack(">I", binascii.crc32(prelude)) + coded + data
    return whole + struct.pack(">I", binascii.crc32(whole))


class Strict(BaseHTTPRequestHandler):
    """Answers a request that is signed right, refuses others as Bedrock does."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        wrong = why_refused(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        if wrong is not None:
            self.answer(403, json.dumps({"message": wrong}).encode(), "application/json", "InvalidSignatureException")
        elif self.path.endswith("/converse-stream"):
            self.answer(200, b"".join(frame(*event) for event in EVENTS), "application/vnd.amazon.eventstream")
        else:
            self.answer(200, json.dumps(ANSWER).encode(), "application/json")

    def answer(self, status: int, body: bytes, kind: str, error: str | None = None) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        if error is not None:
            self.send_header("x-amzn-errortype", error)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("AWS_BEARER_TOKEN_BEDROCK", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "BEDROCK_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    listening = ThreadingHTTPServer(("127.0.0.1", 0), Strict)
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{listening.server_address[1]}"
    listening.shutdown()
    thread.join(10)
    listening.server_close()


@pytest.mark.parametrize("token", [None, TOKEN], ids=["keys", "session"])
@pytest.mark.parametrize("model", MODELS, ids=["model", "arn"])
def test_the_server_takes_what_boto3_signs(server: str, model: str, token: str | None) -> None:
    boto3 = pytest.importorskip("boto3")
    config = botocore.config.Config(retries={"max_attempts": 0})
    client = boto3.client(
        "bedrock-runtime", region_name=REGION, endpoint_url=server, aws_access_key_id=ACCESS,
        aws_secret_access_key=SECRET, aws_session_token=token, config=config,
    )  # fmt: skip
    asked = {"modelId": model, "messages": [{"role": "user", "content": [{"text": "Grüße"}]}]}
    assert client.converse(**asked)["output"] == ANSWER["output"]
    events = list(client.converse_stream(**asked)["stream"])
    assert events == [{kind: data} for kind, data in EVENTS]
    client.close()


@pytest.mark.parametrize("token", [None, TOKEN], ids=["keys", "session"])
@pytest.mark.parametrize("model", MODELS, ids=["model", "arn"])
def test_the_server_takes_what_we_sign(server: str, backend: str, model: str, token: str | None) -> None:
    async def main() -> None:
        async with open_runtime():
            for streaming in (False, True):
                keys = {"aws_access_key_id": ACCESS, "aws_secret_access_key": SECRET, "aws_session_token": token}
                asked = get_model(f"bedrock/{model}", base_url=server, region_name=REGION, streaming=streaming, **keys)
                output = await asked.generate([ChatMessageUser(content="Grüße")], config=GenerateConfig(max_retries=0))
                assert output.completion == "Grüße"
                assert output.usage is not None
                assert output.usage.output_tokens == 2

    run_real(backend, main)


def test_a_wrong_secret_gives_the_model_up_and_is_not_told(server: str, backend: str) -> None:
    async def main() -> None:
        async with open_runtime():
            model = get_model(
                f"bedrock/{MODELS[0]}", base_url=server, region_name=REGION, aws_access_key_id=ACCESS,
                aws_secret_access_key="not-the-secret",
            )  # fmt: skip
            with pytest.raises(ModelGivenUp, match="signature does not match") as caught:
                await model.generate("hello")
            assert "not-the-secret" not in str(caught.value)

    run_real(backend, main)


@pytest.mark.parametrize("changed", ["nothing", "body", "path", "date", "token", "header"])
def test_the_server_is_strict(server: str, changed: str) -> None:
    from botocore.credentials import Credentials

    from proctor.model.providers.bedrock_signing import Signer

    url, body = f"{server}/model/{quote(MODELS[0], safe='')}/converse", b'{"messages": []}'
    headers = Signer(REGION, Credentials(ACCESS, SECRET, TOKEN)).headers(url, body)
    if changed == "body":
        body = b'{"messages": [1]}'
    elif changed == "path":
        url = url.replace("converse", "invoke")
    elif changed == "date":
        headers["X-Amz-Date"] = headers["X-Amz-Date"][:-2] + ("0Z" if headers["X-Amz-Date"][-2] != "0" else "1Z")
    elif changed == "token":
        headers["X-Amz-Security-Token"] = base64.b64encode(b"another").decode()
    elif changed == "header":
        headers["Host"] = "elsewhere.test"
    status = httpx.post(url, content=body, headers=headers).status_code
    assert status == (200 if changed == "nothing" else 403)
