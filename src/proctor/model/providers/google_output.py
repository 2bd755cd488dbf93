"""Answers of Gemini's generateContent protocol: chunks of a stream to a response, a response to an output. No I/O."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from proctor.model.messages import (
    ChatMessageAssistant,
    Content,
    ContentAudio,
    ContentImage,
    ContentReasoning,
    ContentText,
    ContentToolUse,
    UrlCitation,
)
from proctor.model.output import (
    ChatCompletionChoice,
    Logprob,
    Logprobs,
    ModelOutput,
    ModelUsage,
    StopCategory,
    StopDetails,
    StopReason,
    TopLogprob,
)
from proctor.model.providers.filtered import filter_details
from proctor.model.providers.google_content import CALL_ID, NO_CONTENT, OURS, PARTS, Part
from proctor.model.toolcall import ToolCall

STOP_REASONS: Final[Mapping[str, StopReason]] = {
    "STOP": "stop",
    "MAX_TOKENS": "max_tokens",
    **dict.fromkeys(
        (
            "SAFETY",
            "RECITATION",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
            "IMAGE_SAFETY",
            "IMAGE_PROHIBITED_CONTENT",
            "IMAGE_RECITATION",
            "MODEL_ARMOR",
        ),
        "content_filter",
    ),
}
MALFORMED: Final = "MALFORMED_FUNCTION_CALL"
MALFORMED_WORDS: Final = "a function call that could not be read"


# -- a stream ---------------------------------------------------------------------------------------------------------


class ResponseAssembly:
    """The response that the chunks of a stream make up."""

    def __init__(self) -> None:
        self.response: dict[str, Any] = {}
        self._candidates: dict[int, dict[str, Any]] = {}

    def feed(self, chunk: Mapping[str, Any]) -> None:
        """Take one chunk."""
        for name, value in chunk.items():
            if name != "candidates":
                self.response[name] = value
        for candidate in chunk.get("candidates") or ():
            whole = self._candidates.setdefault(candidate.get("index", 0), {})
            for name, value in candidate.items():
                if name == "content":
                    content = whole.setdefault("content", {"role": "model", "parts": []})
                    content["parts"] += value.get("parts") or ()
                elif name == "logprobsResult":
                    _extend(whole.setdefault(name, {}), value)
                elif value is not None:
                    whole[name] = value

    @property
    def finished(self) -> bool:
        """Whether every answer has its end, or the prompt was refused."""
        candidates = self._candidates.values()
        if candidates:
            return all("finishReason" in candidate for candidate in candidates)
        return "promptFeedback" in self.response

    def answer(self) -> dict[str, Any]:
        """The whole response."""
        candidates = [self._candidates[index] for index in sorted(self._candidates)]
        for candidate in candidates:
            if "content" in candidate:
                candidate["content"]["parts"] = merged(candidate["content"]["parts"])
        return {**self.response, "candidates": candidates} if candidates else dict(self.response)


def _extend(whole: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        whole[name] = [*whole.get(name, ()), *value] if isinstance(value, list) else value


def merged(parts: Sequence[Part]) -> list[Part]:
    """Parts with neighbouring pieces of one text made one; a signature belongs to the text before it."""
    out: list[Part] = []
    open_text = False
    for part in parts:
        text = set(part) <= {"text", "thought", "thoughtSignature"} and "text" in part
        if text and open_text and bool(part.get("thought")) == bool(out[-1].get("thought")):
            out[-1] = {**out[-1], **part, "text": out[-1]["text"] + part["text"]}
        elif text and not part["text"] and "thoughtSignature" not in part:
            continue
        else:
            out.append(dict(part))
        open_text = text and "thoughtSignature" not in out[-1]
    return out


# -- a response -------------------------------------------------------------------------------------------------------


def output_from_wire(data: Mapping[str, Any], *, model: str, new_id: Callable[[], str]) -> ModelOutput:
    """The output that a response holds.

    Args:
        model: who was asked. new_id: makes ids for calls that come without one.
    """
    name = data.get("modelVersion") or model
    candidates = sorted(data.get("candidates") or (), key=lambda candidate: candidate.get("index") or 0)
    if candidates:
        choices = [choice_from_wire(candidate, model=name, new_id=new_id) for candidate in candidates]
    else:
        choices = [_blocked(data.get("promptFeedback"), name)]
    return ModelOutput(
        model=name,
        choices=choices,
        usage=usage_from_wire(data.get("usageMetadata")),
        response_id=data.get("responseId"),
    )


def _blocked(feedback: Mapping[str, Any] | None, model: str) -> ChatCompletionChoice:
    """The choice for a response without any: the prompt was refused, or nothing was said."""
    if not feedback:
        message = ChatMessageAssistant(content=NO_CONTENT, source="generate", model=model)
        return ChatCompletionChoice(message=message, stop_reason="stop")
    reason = feedback.get("blockReason") or "UNKNOWN"
    words = feedback.get("blockReasonMessage")
    text = f"The prompt was blocked: {reason}" + (f"\n{words}" if words else "")
    return ChatCompletionChoice(
        message=ChatMessageAssistant(content=text, source="generate", model=model),
        stop_reason="content_filter",
        stop_details=filter_details(reason, words or text, _categories(feedback.get("safetyRatings"))),
    )


def _categories(ratings: Sequence[Mapping[str, Any]] | None) -> list[StopCategory]:
    return [
        StopCategory(category=rating["category"], level=rating.get("probability"))
        for rating in ratings or ()
        if rating.get("blocked") and rating.get("category")
    ]


def choice_from_wire(candidate: Mapping[str, Any], *, model: str, new_id: Callable[[], str]) -> ChatCompletionChoice:
    """One candidate of a response."""
    parts = (candidate.get("content") or {}).get("parts") or []
    contents, calls = contents_from_wire(parts, new_id)
    reason = candidate.get("finishReason") or "STOP"
    stop: StopReason = STOP_REASONS.get(reason, "unknown")
    if reason == MALFORMED:
        words = candidate.get("finishMessage") or MALFORMED_WORDS
        contents.append(ContentText(text=f"I tried to call a function, but what I wrote was {words}"))
    if calls and stop == "stop":
        stop = "tool_calls"
    _cite(contents, candidate)
    return ChatCompletionChoice(
        message=ChatMessageAssistant(content=contents or "", source="generate", tool_calls=calls or None, model=model),
        stop_reason=stop,
        stop_details=_stop_details(candidate, reason, stop),
        logprobs=logprobs_from_wire(candidate.get("logprobsResult")),
    )


def _stop_details(candidate: Mapping[str, Any], reason: str, stop: StopReason) -> StopDetails | None:
    categories = _categories(candidate.get("safetyRatings"))
    if not categories and stop != "content_filter":
        return None
    return filter_details(reason, candidate.get("finishMessage"), categories)


def contents_from_wire(parts: Sequence[Part], new_id: Callable[[], str]) -> tuple[list[Content], list[ToolCall]]:
    """The contents and the tool calls of a candidate."""
    contents: list[Content] = []
    calls: list[ToolCall] = []
    signed = any("thoughtSignature" in part for part in parts)
    thought: ContentReasoning | None = None  # the last one, for as long as a signature may belong to it
    for i, part in enumerate(parts):
        signature = part.get("thoughtSignature")
        if "functionCall" in part:
            call = _call(part["functionCall"], new_id)
            calls.append(call)
            thought = None
            if signed:
                internal = {CALL_ID: call.id}
                contents.append(ContentReasoning(reasoning=signature or "", redacted=True, internal=internal))
        elif "executableCode" in part or "toolCall" in part:
            contents.append(_server_tool(part, parts[i + 1 :]))
            thought = None
        elif "codeExecutionResult" in part or "toolResponse" in part:
            continue  # taken with its call
        elif part.get("thought"):
            thought = ContentReasoning(reasoning=part.get("text") or "")
            contents.append(thought)
            if signature:
                _sign(thought, signature, contents)
                thought = None
        else:
            if signature:
                _sign(thought, signature, contents)
                thought = None
            if (content := _plain(part)) is not None:
                contents.append(content)
    return contents, calls


def _sign(thought: ContentReasoning | None, signature: str, contents: list[Content]) -> None:
    """Keep a signature: with the thought before it, whose text becomes its summary, or by itself."""
    if thought is None:
        contents.append(ContentReasoning(reasoning=signature, redacted=True, internal={OURS: "signature"}))
    else:
        thought.summary, thought.reasoning, thought.redacted = thought.reasoning, signature, True
        thought.internal = {OURS: "signature"}


def _call(wire: Mapping[str, Any], new_id: Callable[[], str]) -> ToolCall:
    name = wire.get("name") or ""
    arguments = {key: value for key, value in (wire.get("args") or {}).items() if key != "safety_decision"}
    return ToolCall(id=wire.get("id") or f"{name}_{new_id()}", function=name, arguments=arguments)


def _plain(part: Part) -> Content | None:
    if part.get("text"):
        return ContentText(text=part["text"])
    blob = part.get("inlineData") or {}
    kind, data = blob.get("mimeType") or "", blob.get("data")
    if data is None:
        return None
    url = f"data:{kind};base64,{data}"
    if kind.startswith("audio/"):
        return ContentAudio(audio=url, format="wav" if "wav" in kind else "mp3")
    return ContentImage(image=url)


def _server_tool(part: Part, rest: Sequence[Part]) -> ContentToolUse:
    """A tool that the vendor ran: its part, and that of its result."""
    if (code := part.get("executableCode")) is not None:
        result = next((one for one in rest[:1] if "codeExecutionResult" in one), None)
        found = (result or {}).get("codeExecutionResult") or {}
        failed = found.get("outcome") not in {None, "OUTCOME_OK"}
        output = found.get("output") or ""
        return ContentToolUse(
            tool_type="code_execution",
            id=code.get("id") or "",
            name="code_execution",
            arguments=code.get("code") or "",
            result=output,
            error=output or found.get("outcome") if failed else None,
            internal={PARTS: [part, result] if result else [part]},
        )
    call = part["toolCall"]
    result = next(
        (one for one in rest if (one.get("toolResponse") or {}).get("id") == call.get("id") and "toolResponse" in one),
        None,
    )
    return ContentToolUse(
        tool_type="web_search",
        id=call.get("id") or "",
        name=str(call.get("toolType") or "tool").lower(),
        arguments=json.dumps(call.get("args") or {}),
        result=json.dumps((result or {}).get("toolResponse", {}).get("response") or {}),
        internal={PARTS: [part, result] if result else [part]},
    )


def _cite(contents: list[Content], candidate: Mapping[str, Any]) -> None:
    """Web pages that support the answer go to its texts."""
    metadata = candidate.get("groundingMetadata") or {}
    pages = [(chunk.get("web") or {}) for chunk in metadata.get("groundingChunks") or ()]
    texts = [content for content in contents if isinstance(content, ContentText)]
    for support in metadata.get("groundingSupports") or ():
        segment = support.get("segment") or {}
        text = next((one for one in texts if segment.get("text") and segment["text"] in one.text), None)
        for index in support.get("groundingChunkIndices") or ():
            if text is not None and index < len(pages) and pages[index].get("uri"):
                citation = UrlCitation(
                    cited_text=segment["text"], title=pages[index].get("title"), url=pages[index]["uri"]
                )
                text.citations = [*(text.citations or ()), citation]


def logprobs_from_wire(wire: Mapping[str, Any] | None) -> Logprobs | None:
    """Log probabilities of a candidate."""
    chosen = (wire or {}).get("chosenCandidates")
    if not wire or not chosen:
        return None
    tops = [step.get("candidates") for step in wire.get("topCandidates") or ()]
    tops += [None] * (len(chosen) - len(tops))
    return Logprobs(
        content=[
            Logprob(
                token=step.get("token") or "",
                logprob=step.get("logProbability") or 0.0,
                top_logprobs=None
                if top is None
                else [
                    TopLogprob(token=one.get("token") or "", logprob=one.get("logProbability") or 0.0) for one in top
                ],
            )
            for step, top in zip(chosen, tops, strict=False)
        ]
    )


def usage_from_wire(usage: Mapping[str, Any] | None) -> ModelUsage | None:
    """Tokens used: cached ones are taken out of the input, and thoughts are put to the output, as the log has it."""
    if not usage:
        return None
    prompt, cached = usage.get("promptTokenCount") or 0, usage.get("cachedContentTokenCount") or 0
    thoughts, made = usage.get("thoughtsTokenCount"), usage.get("candidatesTokenCount") or 0
    return ModelUsage(
        input_tokens=max(0, prompt - cached),
        output_tokens=made + (thoughts or 0),
        total_tokens=usage.get("totalTokenCount") or prompt + made + (thoughts or 0),
        input_tokens_cache_read=cached or None,
        reasoning_tokens=thoughts,
    )
