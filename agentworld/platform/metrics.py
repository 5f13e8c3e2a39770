"""Metric names are a closed set; the process registry serves them to Prometheus."""

from __future__ import annotations

from functools import cache
from typing import Literal, get_args

from prometheus_client import Counter, Gauge, Histogram

CounterName = Literal[
    "gateway_calls",  # by protocol and status
    "gateway_engine_calls",  # tries at engines, by engine and outcome (answered, refused, failed)
    "gateway_engine_retries",  # calls tried again because an engine gave nothing, by that engine
    "gateway_continuations",  # prompts that could continue sampled ids, by outcome: see `Continuation`
    "gateway_spooled_records",  # records that went to the spool instead of the broker
    "gateway_republished_records",  # acknowledged tail repeated after a broker's return
    "processor_events",  # by agent and event type
    "processor_duplicates",  # redelivered events that changed nothing
    "processor_decisions",  # by event type of the decision
    "processor_sealed_steps",  # by relation to their parent (superseded ones under that name) and run
    "evaluator_evaluations",  # by evaluator and outcome (answered, failed, budget_spent, stands)
    "evaluator_calls",  # calls of judges, by evaluator and outcome (answered, unusable, unavailable, refused)
    "evaluator_tokens",  # of judges, by evaluator and kind (prompt, answer)
    "sink_rows",  # by table
    "dead_letters",  # by topic and reason
]
GaugeName = Literal[
    "gateway_spool_bytes",  # bytes waiting in the spool
    "gateway_open_calls",  # calls under way
    "gateway_engine_open_calls",  # the same at one engine, by engine
    "gateway_engine_well",  # 1 where its health checks are answered, else 0, by engine
    "gateway_engine_breaker",  # 0 closed, 0.5 half open, 1 open, by engine
    "gateway_engine_held",  # 1 while its calls wait for new weights, else 0, by engine
    "processor_open_trajectories",  # not yet sealed, by partition
    "processor_open_groups",  # not yet decided, by partition
    "processor_waiting_groups",  # ready and in no batch yet, by run and channel
    "processor_unconsumed_batches",  # not yet taken by the trainer, where that is limited; by run and channel
    "evaluator_open_trajectories",  # being evaluated now
]
HistogramName = Literal[
    "gateway_call_seconds",  # request arrival to end of reply
    "gateway_capture_ack_seconds",  # publish to broker ack or spool fsync
    "evaluator_seconds",  # one evaluation, pauses and further tries included, by evaluator
    "sink_insert_seconds",  # one insert, by table
]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


@cache
def counter(name: CounterName, *labels: str) -> Counter:
    """The process's counter of that name."""
    assert name in get_args(CounterName)
    return Counter(name, name.replace("_", " "), labels, namespace="agentworld")


@cache
def gauge(name: GaugeName, *labels: str) -> Gauge:
    """The process's gauge of that name."""
    assert name in get_args(GaugeName)
    return Gauge(name, name.replace("_", " "), labels, namespace="agentworld")


@cache
def histogram(name: HistogramName, *labels: str) -> Histogram:
    """The process's histogram of that name, in seconds."""
    assert name in get_args(HistogramName)
    return Histogram(name, name.replace("_", " "), labels, namespace="agentworld", buckets=_SECONDS)
