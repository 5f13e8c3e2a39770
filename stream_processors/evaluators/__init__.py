"""Evaluators read sealed trajectories and answer with rewards and verdicts, as events.

`kinds` is what the rules file says of them; `python -m stream_processors.evaluators` is the service.
"""
