"""The headers of a response."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


class ResponseHeaders(Mapping[str, str]):
    """Headers by name, in any case. A name that came several times has its first value; `getall` has all."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[str, list[str]] = {}

    def add(self, name: bytes, value: bytes) -> None:
        """Add one as it came."""
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = value.decode("latin-1")
        key = name.decode("latin-1").lower()
        values = self._values.get(key)
        if values is None:
            self._values[key] = [text]
        else:
            values.append(text)

    def getall(self, name: str) -> list[str]:
        """Every value, in the order in which they came."""
        return self._values.get(name.lower(), [])

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()][0]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
