"""The contract: events, topics, ids, codec and delta encoding. Pure: no I/O.

Import the module that holds what you need (`from agentworld.contract.events import StepCaptured`).
"""
