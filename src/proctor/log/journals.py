"""Journals of summaries: lists of them, one a commit, that are joined at the end without being understood.

A summary is cut out of its journal as the bytes it was written as; only its id and epoch are looked at, and that only
in a log in which samples were run again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final, TypeAlias

import msgspec

from proctor.log.encode import decode, encode

Key: TypeAlias = tuple[str, int]


class _Keys(msgspec.Struct):
    id: int | str
    epoch: int


_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_KEYS: Final = msgspec.json.Decoder(_Keys)


def summaries_in(journal: bytes) -> dict[Key, bytes]:
    """The summaries of a journal by the sample they are of, as bytes; of several of one sample the last."""
    try:
        items = [bytes(item) for item in _ITEMS.decode(journal)]
        return {_key(_KEYS.decode(item)): item for item in items}
    except msgspec.DecodeError:  # NaN and infinities
        return {(str(item["id"]), item["epoch"]): encode(item) for item in decode(journal)}


def _key(found: _Keys) -> Key:
    return str(found.id), found.epoch


def joined(
    count: int, journal: Callable[[int], bytes], *, last_only: bool, without: Collection[Key] = ()
) -> Iterator[bytes]:
    """All summaries of a log as one JSON list, in parts.

    Args:
        count: of the journals. journal: gives the content of each, counted from 0.
        last_only: of several summaries of one sample keep the last. without: samples to leave out, with `last_only`.
    """
    last: dict[Key, int] = {}
    if last_only:
        for number in range(count):
            last |= dict.fromkeys(summaries_in(journal(number)), number)
    before = b"["
    for number in range(count):
        items = journal(number)[1:-1]
        if last_only:
            found = summaries_in(journal(number))
            items = b",".join(item for key, item in found.items() if last[key] == number and key not in without)
        if items:
            yield before + items
            before = b","
    yield b"[]" if before == b"[" else b"]"
