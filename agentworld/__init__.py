"""AgentWorld: the durable data layer between agent runtimes and RL training.

`contract` holds the events and their rules (pure), `platform` the clients every
service shares, `cli` the command line.
"""

__version__ = "0.1.0"
