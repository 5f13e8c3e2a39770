"""Stream processors: trajectory-events → trajectories → groups → ready-batches.

Pure state machines per entity (`trajectories`, `groups`, `batches`), thin Faust wiring (`worker`).
"""
