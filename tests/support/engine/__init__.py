"""The token-level model of the scripted engines: tokens, sampling, replies, and the engine's own log."""
