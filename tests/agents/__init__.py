"""Real, unmodified agent clients through the gateway, against a scripted engine.

`python -m tests.agents` installs them and runs them.
"""
