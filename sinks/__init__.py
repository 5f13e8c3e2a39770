"""The sink: reads every topic of facts and writes ClickHouse, exactly once in effect.

Start it with `python -m sinks`. Record → rows is pure (`rows/`); the rest is wiring.
"""
