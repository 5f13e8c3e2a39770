"""Faults under load: every answered call must be in the log, once.

`python -m tests.faults [FAULT …]` runs the real gateway against a real broker and a scripted engine.
"""
