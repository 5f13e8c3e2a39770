"""Trajectories: steps put in order, checked and sealed."""
