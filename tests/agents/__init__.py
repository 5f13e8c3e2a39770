"""Real, unmodified agent clients through the gateway, against a scripted engine.

`python -m tests.agents.install`, then `python -m tests.agents`.
"""
