"""Data URLs, which is how files travel within messages."""

from __future__ import annotations

import base64

from proctor.errors import UsageError


def split_data_url(url: str) -> tuple[str, str]:
    """The MIME type and the base64 text of a data URL.

    Raises:
        UsageError: it is not one.
    """
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:"):
        raise UsageError(f"{url[:60]}: here a file or a data URL is needed")
    kind, _, encoding = head[5:].partition(";")
    if not encoding.endswith("base64"):
        data = base64.b64encode(data.encode()).decode("ascii")
    return kind, data
