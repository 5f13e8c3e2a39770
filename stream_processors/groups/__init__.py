"""Groups: the trajectories of one task, decided once they are complete."""
