"""The trainer's place: ready batches in, policy versions out.

Not built yet. It starts from `agentworld.platform.batches`, the reader that resolves a batch to
token-exact trajectories, and is the only package that may import torch or verl.
"""
