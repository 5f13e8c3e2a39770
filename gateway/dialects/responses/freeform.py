"""Custom (freeform) tools: plain text for the client, `{"input": text}` for the engine."""

from __future__ import annotations

import json

_OPENING = '{"input":"'
_IN_KEY = range(2, 8)
"""Places in `_OPENING` before which a blank would be part of the key."""
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_REPLACEMENT = "\ufffd"


def freeform_arguments(text: str) -> str:
    """Arguments of a call with input `text`, spelt as vLLM's tool parsers spell them.

    The spelling matters: the same arguments as were sampled make the next prompt an
    extension of this one.
    """
    return json.dumps({"input": text}, ensure_ascii=False)


class FreeformInput:
    """Unescapes the input out of arguments that arrive in pieces, however they are cut.

    Arguments that do not begin as `{"input": "` are passed on as they are: the client
    gets to see what was sampled, rather than nothing.
    """

    def __init__(self) -> None:
        self._seen = ""
        """What came before it was clear whether the arguments have the expected form."""
        self._place = 0
        """How much of `_OPENING` has been matched."""
        self._verbatim = False
        self._closed = False
        self._escape = ""
        """An escape that is not complete yet, with its backslash."""
        self._high = 0
        """A high surrogate that waits for its low one."""

    def feed(self, piece: str) -> str:
        """The input that `piece` adds."""
        if not self._verbatim and self._place < len(_OPENING):
            piece = self._open(piece)
        if self._verbatim:
            return piece
        return "" if self._closed else self._unescape(piece)

    def finish(self) -> str:
        """What is left once the arguments have ended."""
        if not self._high:
            return ""
        self._high = 0
        return _REPLACEMENT

    def _open(self, piece: str) -> str:
        for at, char in enumerate(piece):
            if char == _OPENING[self._place]:
                self._place += 1
                if self._place == len(_OPENING):
                    return piece[at + 1 :]
            elif not char.isspace() or self._place in _IN_KEY:
                self._verbatim = True
                return self._seen + piece
        self._seen += piece
        return ""

    def _unescape(self, piece: str) -> str:
        out: list[str] = []
        at = 0
        while at < len(piece):
            if self._escape:
                self._escape += piece[at]
                at += 1
                out.append(self._take_escape())
                continue
            end = _next_special(piece, at)
            if end > at:
                out.append(self.finish() + piece[at:end])
            if end == len(piece):
                break
            at = end + 1
            if piece[end] == '"':
                out.append(self.finish())
                self._closed = True
                break
            self._escape = "\\"
        return "".join(out)

    def _take_escape(self) -> str:
        kind = self._escape[1]
        if kind != "u":
            text, self._escape = _ESCAPES.get(kind, self._escape), ""
            return self.finish() + text
        if len(self._escape) < 6:
            return ""
        digits, self._escape = self._escape[2:], ""
        try:
            code = int(digits, 16)
        except ValueError:
            return self.finish() + "\\u" + digits
        return self._take_unit(code)

    def _take_unit(self, code: int) -> str:
        if 0xDC00 <= code <= 0xDFFF:
            high, self._high = self._high, 0
            return chr(0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00)) if high else _REPLACEMENT
        lone = self.finish()
        if 0xD800 <= code <= 0xDBFF:
            self._high = code
            return lone
        return lone + chr(code)


def _next_special(piece: str, at: int) -> int:
    """Where the next quote or backslash is; the end of `piece` without one."""
    quote, backslash = piece.find('"', at), piece.find("\\", at)
    found = [place for place in (quote, backslash) if place >= 0]
    return min(found, default=len(piece))
