"""The errors a user can meet, each with one sentence that names what is wrong and what to do."""

from __future__ import annotations


class TickproofError(Exception):
    """Base of every error this project raises on purpose. Its message is one line."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


def one_line(text: str) -> str:
    r"""The text with line breaks and all else that does not print written as escapes.

    >>> print(one_line("a\nb"))
    a\nb
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class QueryError(TickproofError):
    """A query, window or expression that cannot be built."""


class CaseError(TickproofError):
    """A case, or a case file, that is not well formed.

    `place` is a JSON-pointer-like path into the case (`streams.S.elements[3].row[0]`), so that the
    message can point at the spot.
    """

    def __init__(self, message: str, place: str = "") -> None:
        self.message = message
        self.place = place
        super().__init__(f"{place}: {message}" if place else message)

    def within(self, prefix: str) -> CaseError:
        """The same error, seen from one level further out."""
        joined = prefix if not self.place else f"{prefix}{_joint(self.place)}{self.place}"
        return CaseError(self.message, joined)


def _joint(place: str) -> str:
    return "" if place.startswith("[") else "."
