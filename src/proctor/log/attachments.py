"""Long texts and images of a sample's events, written once: in their place stands ``attachment://`` and a key.

A text that a model is given and gives is in the conversation, in the pool of what model calls were given, and in the
event of the call that made it; an image besides that in the sample. Readers put the texts back, but only in some
places: in any other a reference would be lost to them, so there texts stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, Final, TypeAlias

import msgspec
from attrs import define, field

PREFIX: Final = "attachment://"
LONG: Final = 100
"""Characters of a text in an event from which on it is an attachment (the format's own bound)."""

DEEPEST: Final = 60
"""Levels of a value that are looked into."""

REMOVED: Final = "<base64-data-removed>"
"""Stands for the data of an image, sound or film where they are not to be logged; readers know it."""

Swap: TypeAlias = Callable[[str], str]
_MEDIA: Final = ("image", "audio", "video", "document")


@define(eq=False)
class Attachments:
    """The attachments of one record; works on what `proctor.log.encode.shape` made, in place.

    Attributes:
        images: whether the data of images, sound and film is kept. texts: by key.
    """

    images: bool = True
    texts: dict[str, str] = field(factory=dict)

    def text(self, text: str) -> str:
        """A text of an event: a reference in place of a long one."""
        if len(text) <= LONG or text.__class__ is not str:
            return text
        if not self.images and text.startswith("data:") and is_data(text):
            return REMOVED
        return self._attached(text)

    def data(self, text: str) -> str:
        """What a picture or the like is: a reference in place of its data."""
        if text.__class__ is not str or not is_data(text):
            return text
        return self._attached(text) if self.images else REMOVED

    def _attached(self, text: str) -> str:
        key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        self.texts[key] = text
        return PREFIX + key

    def conversation(self, messages: Any) -> None:
        """The final conversation, or an input: texts stay, data goes."""
        if messages.__class__ is list:
            for message in messages:
                self._content(message, self._same, self.data)

    def pooled(self, messages: Sequence[Any]) -> None:
        """Messages that model calls were given."""
        for message in messages:
            self._content(message, self.text, self.data)

    def value(self, value: Any, depth: int = 0) -> Any:
        """Any JSON value, its long texts swapped in a copy; the same object when there is none."""
        if value.__class__ is str:
            return self.text(value)
        if depth > DEEPEST:
            return value
        if value.__class__ is dict:
            swapped = {key: self.value(item, depth + 1) for key, item in value.items()}
            return swapped if any(swapped[key] is not item for key, item in value.items()) else value
        if value.__class__ is list:
            items = [self.value(item, depth + 1) for item in value]
            return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
        return value

    def event(self, event: Any) -> None:
        """An event, in the places in which readers put attachments back."""
        attach = _BY_KIND.get(getattr(event, "event", ""))
        if attach is not None:
            attach(self, event)

    def _model(self, event: Any) -> None:
        self.pooled(event.input)
        for tool in event.tools or ():
            tool.description = self.text(tool.description)
        for choice in event.output.choices or ():
            self._content(choice.message, self.text, self.data)
        if (call := event.call) is not None:
            call.request, call.response = self.value(call.request), self.value(call.response)

    def _tool(self, event: Any) -> None:
        event.arguments = self.value(event.arguments)
        for part in event.result if event.result.__class__ is list else [event.result]:
            self._part(part, self._same, self.data)

    def _sample_init(self, event: Any) -> None:
        sample = event.sample
        if isinstance(sample, msgspec.Struct):
            said: Any = getattr(sample, "input", None)
            if said.__class__ is str:
                sample.input = self.text(said)  # type: ignore[attr-defined]
            elif said.__class__ is list:
                self.pooled(said)
        event.state = self.value(event.state)

    def _changes(self, event: Any) -> None:
        for change in event.changes:
            change.value = self.value(change.value)

    def _info(self, event: Any) -> None:
        event.data = self.value(event.data)

    def _content(self, message: Any, text: Swap, data: Swap) -> None:
        if not isinstance(message, msgspec.Struct):
            return
        content: Any = getattr(message, "content", None)
        if content.__class__ is str:
            message.content = text(content)  # type: ignore[attr-defined]
        elif content.__class__ is list:
            for part in content:
                self._part(part, text, data)

    def _part(self, part: Any, text: Swap, data: Swap) -> None:
        kind = getattr(part, "type", None) if isinstance(part, msgspec.Struct) else None
        if kind in {"text", "reasoning"}:
            setattr(part, kind, text(getattr(part, kind)))
        elif kind in _MEDIA:
            setattr(part, kind, data(getattr(part, kind)))

    def _same(self, text: str) -> str:
        return text


_BY_KIND: Final[dict[str, Callable[[Attachments, Any], None]]] = {
    "model": Attachments._model,
    "tool": Attachments._tool,
    "sample_init": Attachments._sample_init,
    "state": Attachments._changes,
    "store": Attachments._changes,
    "info": Attachments._info,
}


def is_data(text: str) -> bool:
    """Whether a text is a ``data:`` URL with its data in base 64."""
    return text.startswith("data:") and ";base64," in text[:200]
