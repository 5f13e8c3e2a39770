"""A small OpenAI-compatible inference engine for the demo and for tests: no torch, real sampling.

`vocabulary` and `template` turn messages into ids, `reading` and `scripts` are what the model
knows, `model` is the distribution, `sampling` draws from it, `server` speaks vLLM's dialect.
"""
