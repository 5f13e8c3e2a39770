"""Online mode: calls without a trajectory in their path, and the conversations they belong to.

`said` is pure, `Conversations` is bounded memory, `Online` registers what is found.
"""

from gateway.online.conversations import Conversations
from gateway.online.identity import Named, named
from gateway.online.registrar import Online, Placed

__all__ = ["Conversations", "Named", "Online", "Placed", "named"]
