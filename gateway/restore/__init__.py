"""Puts sampled turns back where a client echoes them rewritten.

Agents re-serialise a turn before they send it back: keys in another order, defaults added, blanks
stripped, ids cut to letters and digits. The next prompt would then no longer begin with what was
sampled. So a turn that was sampled here is remembered (`TurnMemory`), found again by its tool call
ids, or by its text where it calls no tool, and put back byte for byte (`restore`). No I/O.
"""

from gateway.restore.memory import TurnMemory
from gateway.restore.putting_back import Arguments, Replaced, Restored, restore
from gateway.restore.turns import SampledTurn, Turns, as_seen

__all__ = ["Arguments", "Replaced", "Restored", "SampledTurn", "TurnMemory", "Turns", "as_seen", "restore"]
