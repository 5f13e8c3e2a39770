"""Replay: what stands in the log, decided again under other rules, as another run."""
