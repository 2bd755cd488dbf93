"""A call that may be answered from the cache of answers."""

from __future__ import annotations

from typing import Any

from proctor.model.generation import Generation
from proctor.model.output import ModelOutput
from proctor.runtime import current_sample


async def through_cache(generation: Generation, cache: Any) -> ModelOutput:
    """The answer that the same call was given earlier, else a new one, which is kept.

    Args:
        cache: what the call says of it (`policy_of`).
    """
    from proctor.model.cache import CacheEntry, cache_fetch, cache_store, policy_of

    policy = policy_of(cache, generation.config)
    if policy is None:
        return await generation.run()
    sample, source = current_sample(), generation.source
    path = CacheEntry(
        model=source.name,
        base_url=source.described.base_url,
        arguments=tuple(sorted((name, repr(value)) for name, value in source.public_arguments.items())),
        config=generation.config,
        input=generation.messages,
        tools=generation.tools,
        tool_choice=generation.tool_choice,
        epoch=None if sample is None else sample.epoch,
        policy=policy,
    ).path()
    in_thread = generation.runtime.to_thread
    found = await in_thread(cache_fetch, path)
    if found is not None:
        return generation.recalled(found)
    generation.cached = "write"
    output = await generation.run()
    await in_thread(cache_store, path, output, policy)
    return output
