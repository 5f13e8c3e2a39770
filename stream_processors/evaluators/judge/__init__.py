"""A language model as a judge: its endpoint, its answer and what the two make of a trajectory."""
