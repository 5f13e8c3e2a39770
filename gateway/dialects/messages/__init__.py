"""Anthropic Messages: client request to canonical call, engine answer to a Message or its events.

Pure: `dialect.Messages` is the protocol, `counting` the token count, the rest its parts.
"""

from gateway.dialects.messages.call import MessagesCall
from gateway.dialects.messages.counting import count_reply, counted, estimate, tokenize_body
from gateway.dialects.messages.dialect import COUNT_TOKENS_PATH, Messages
from gateway.dialects.messages.errors import anthropic_error
from gateway.dialects.messages.stream import PING, MessagesStream

__all__ = [
    "COUNT_TOKENS_PATH",
    "PING",
    "Messages",
    "MessagesCall",
    "MessagesStream",
    "anthropic_error",
    "count_reply",
    "counted",
    "estimate",
    "tokenize_body",
]
