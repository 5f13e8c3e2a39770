"""Events, one module per topic. Frozen, tagged by `type`, versioned by `schema_version`.

Readers ignore fields they do not know, so a field with a default may be added within a
version; anything else needs a new version (`tests/contract` enforces it).
"""

from agentworld.contract.events.base import (
    Event,
    EventSource,
    Json,
    LogProb,
    Outcome,
    PromptDelta,
    RawJson,
    TokenId,
    TokenSource,
    raw_json,
)
from agentworld.contract.events.batches import BatchGroup, BatchReady
from agentworld.contract.events.directory import DirectoryUpdated
from agentworld.contract.events.groups import (
    GroupDecision,
    GroupEvent,
    GroupExpired,
    GroupHeld,
    GroupMember,
    GroupPartial,
    GroupReady,
    GroupRejected,
    GroupRevised,
    Place,
)
from agentworld.contract.events.training import (
    BatchConsumed,
    PolicyPublished,
    StepTrained,
    TrainingEvent,
)
from agentworld.contract.events.trajectories import (
    IntegrityReport,
    Reward,
    SealedStep,
    TrajectoriesEvent,
    TrajectoryRevised,
    TrajectorySealed,
)
from agentworld.contract.events.trajectory_events import (
    ClockTicked,
    Continuation,
    EngineCall,
    RewardAssigned,
    StepCaptured,
    StepError,
    StepRequest,
    TrajectoryCompleted,
    TrajectoryEvent,
    TrajectoryRegistered,
    VerdictGiven,
)

__all__ = [
    "BatchConsumed",
    "BatchGroup",
    "BatchReady",
    "ClockTicked",
    "Continuation",
    "DirectoryUpdated",
    "EngineCall",
    "Event",
    "EventSource",
    "GroupDecision",
    "GroupEvent",
    "GroupExpired",
    "GroupHeld",
    "GroupMember",
    "GroupPartial",
    "GroupReady",
    "GroupRejected",
    "GroupRevised",
    "IntegrityReport",
    "Json",
    "LogProb",
    "Outcome",
    "Place",
    "PolicyPublished",
    "PromptDelta",
    "RawJson",
    "Reward",
    "RewardAssigned",
    "SealedStep",
    "StepCaptured",
    "StepError",
    "StepRequest",
    "StepTrained",
    "TokenId",
    "TokenSource",
    "TrainingEvent",
    "TrajectoriesEvent",
    "TrajectoryCompleted",
    "TrajectoryEvent",
    "TrajectoryRegistered",
    "TrajectoryRevised",
    "TrajectorySealed",
    "VerdictGiven",
    "raw_json",
]
