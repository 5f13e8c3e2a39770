"""OpenAI Responses: a client's items to a chat completions call and back, event by event."""

from gateway.dialects.responses.call import ResponsesCall, ToolOrigin
from gateway.dialects.responses.dialect import Responses
from gateway.dialects.responses.stream import ResponsesStream

__all__ = ["Responses", "ResponsesCall", "ResponsesStream", "ToolOrigin"]
