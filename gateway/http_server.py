"""uvicorn's HTTP/1.1, with an end to heads that never end, and without advice on WebSockets."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.failures import error_body
from gateway.heads import too_large_head


def bounded_http(max_header_bytes: int) -> type[HttpToolsProtocol]:
    """The protocol class for `uvicorn.Config(http=…)`: a head that grows beyond the limit gets 431."""

    class BoundedHttp(HttpToolsProtocol):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._in_head = True
            self._head_bytes = 0

        def on_message_begin(self) -> None:
            self._in_head, self._head_bytes = True, 0
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._in_head = False
            super().on_headers_complete()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._in_head and not self.transport.is_closing():
                self._head_bytes += len(data)
                if self._head_bytes > max_header_bytes:
                    self._refuse_head()

        def _refuse_head(self) -> None:
            body = error_body(too_large_head(self._head_bytes, max_header_bytes))
            self.transport.write(
                b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
                b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(body), body)
            )
            self.transport.close()

        def _unsupported_upgrade_warning(self) -> None:
            """Nothing: the application answers 426."""

    return BoundedHttp
