"""`Store`: what the solvers, tools and scorers of a sample share by name."""

from __future__ import annotations

from collections.abc import ItemsView, KeysView, Mapping, ValuesView
from contextvars import ContextVar
from copy import deepcopy
from typing import Any, Final, TypeVar, overload

from proctor.solver.using import Using

V = TypeVar("V")


class Store:
    """Values by name. They should be such as JSON can hold, for the log keeps them.

    Args:
        data: values to begin with; they are copied.
    """

    __slots__ = ("_data",)

    def __init__(self, data: Mapping[str, Any] | None = None) -> None:
        self._data: dict[str, Any] = deepcopy(dict(data)) if data else {}

    @overload
    def get(self, key: str, default: None = None) -> Any: ...
    @overload
    def get(self, key: str, default: V) -> V: ...
    def get(self, key: str, default: V | None = None) -> V | Any:
        """The value of a name; where there is none, the default, which is then also put into the store."""
        if default is not None:
            return self._data.setdefault(key, default)
        return self._data.get(key)

    def set(self, key: str, value: Any) -> None:
        """Give a name a value."""
        self._data[key] = value

    def delete(self, key: str) -> None:
        """Remove a name.

        Raises:
            KeyError: there is none.
        """
        del self._data[key]

    def keys(self) -> KeysView[str]:
        """The names."""
        return self._data.keys()

    def values(self) -> ValuesView[Any]:
        """The values."""
        return self._data.values()

    def items(self) -> ItemsView[str, Any]:
        """Names with values."""
        return self._data.items()

    def __contains__(self, key: object) -> bool:
        return key in self._data

    def __len__(self) -> int:
        return len(self._data)

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return self._data == (other._data if isinstance(other, Store) else other)

    __hash__ = None  # type: ignore[assignment]  # its values change

    def __repr__(self) -> str:
        return f"Store({self._data!r})"


_store: Final[ContextVar[Store | None]] = ContextVar("proctor_store", default=None)


def store() -> Store:
    """The store of the running sample (of a fork, the fork's); outside of a sample a new one, which nobody shares."""
    return _store.get() or Store()


def use_store(current: Store) -> Using[Store]:
    """``with use_store(state.store):`` makes it the one that `store()` finds, in this task and those started below."""
    return Using(_store, current)


def store_data(of: Store) -> dict[str, Any]:
    """The values of a store as a dict of their own (the values themselves are not copied)."""
    return dict(of.items())
