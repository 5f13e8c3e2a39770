-- Decisions on groups, and the batches released to training.

CREATE TABLE IF NOT EXISTS groups
(
    run_id LowCardinality(String),
    channel LowCardinality(String),
    group_id String,
    prompt_id String,
    round UInt32,
    decision LowCardinality(String) COMMENT 'group_ready, group_partial, group_held, group_rejected, group_expired, group_revised',
    version UInt32 COMMENT '1 for the first decision; each revision counts on',
    rollouts UInt32 COMMENT 'n: trajectories the group waits for',
    members UInt32 COMMENT 'Trajectories it has',
    trajectory_ids Array(String) COMMENT 'In the order in which they were sealed',
    rewards Array(Nullable(Float64)) COMMENT 'Of trajectory_ids, in that order',
    outcomes Array(LowCardinality(String)) COMMENT 'Of trajectory_ids, in that order',
    steps UInt32,
    prompt_tokens UInt64,
    response_tokens UInt64,
    policy_version_min Nullable(Int64),
    policy_version_max Nullable(Int64),
    reason String,
    decided_by String COMMENT 'Policy, rule, evaluator or person',
    details String COMMENT 'The values that decided, JSON object' CODEC(ZSTD(3)),
    event_id String,
    event_time DateTime64(3, 'UTC'),
    kafka_topic LowCardinality(String),
    kafka_partition UInt32,
    kafka_offset UInt64,
    row_version UInt64 COMMENT 'By version, then by time',
    ingested_at DateTime64(3, 'UTC') DEFAULT now64(3),
    INDEX ix_group group_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX ix_time event_time TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(row_version)
ORDER BY (run_id, channel, group_id)
SETTINGS index_granularity = 1024
COMMENT 'One row per group: its newest decision';

CREATE TABLE IF NOT EXISTS group_decisions AS groups
ENGINE = ReplacingMergeTree(row_version)
ORDER BY (run_id, channel, group_id, event_id)
COMMENT 'Every decision on every group, in the order of version';

CREATE TABLE IF NOT EXISTS verdicts
(
    group_id String,
    event_id String,
    trajectory_id Nullable(String) COMMENT 'None: on the whole group',
    prompt_id String,
    decision LowCardinality(String) COMMENT 'accept, reject, hold',
    given_by_kind LowCardinality(String) COMMENT 'rule, evaluator, person',
    given_by LowCardinality(String),
    reason String,
    value String COMMENT 'The measured value and its limit, JSON object' CODEC(ZSTD(3)),
    event_time DateTime64(3, 'UTC'),
    kafka_topic LowCardinality(String),
    kafka_partition UInt32,
    kafka_offset UInt64,
    row_version UInt64,
    ingested_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = ReplacingMergeTree(row_version)
ORDER BY (group_id, event_id)
COMMENT 'Every verdict given';

CREATE TABLE IF NOT EXISTS batches
(
    run_id LowCardinality(String),
    channel LowCardinality(String),
    batch_id String,
    sequence UInt64 COMMENT '0, 1, ... within run and channel',
    group_ids Array(String),
    trajectory_ids Array(String),
    groups UInt32,
    trajectories UInt32,
    steps UInt32,
    response_tokens UInt64,
    policy_version_min Nullable(Int64),
    policy_version_max Nullable(Int64),
    reason LowCardinality(String) COMMENT 'full, linger',
    replay_of Nullable(String) COMMENT 'Run that was replayed',
    event String COMMENT 'The BatchReady event, JSON' CODEC(ZSTD(3)),
    event_time DateTime64(3, 'UTC'),
    kafka_topic LowCardinality(String),
    kafka_partition UInt32,
    kafka_offset UInt64,
    row_version UInt64,
    ingested_at DateTime64(3, 'UTC') DEFAULT now64(3),
    INDEX ix_batch batch_id TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = ReplacingMergeTree(row_version)
ORDER BY (run_id, channel, batch_id)
COMMENT 'One row per batch released to training';

CREATE TABLE IF NOT EXISTS batch_members
(
    run_id LowCardinality(String),
    channel LowCardinality(String),
    batch_id String,
    group_id String,
    trajectory_id String,
    prompt_id String,
    group_version UInt32 COMMENT 'The decision the batch was built on',
    position UInt32 COMMENT '0-based place of the trajectory in its group',
    outcome LowCardinality(String),
    reward Nullable(Float64) COMMENT 'The reward it is trained with',
    steps UInt32,
    prompt_tokens UInt64,
    response_tokens UInt64,
    policy_version_min Nullable(Int64),
    policy_version_max Nullable(Int64),
    clean Bool,
    sealed_at DateTime64(3, 'UTC'),
    place_partition UInt32 COMMENT 'Of its TrajectorySealed in trajectories',
    place_offset UInt64 COMMENT 'Of its TrajectorySealed in trajectories',
    event_time DateTime64(3, 'UTC'),
    kafka_topic LowCardinality(String),
    kafka_partition UInt32,
    kafka_offset UInt64,
    row_version UInt64,
    ingested_at DateTime64(3, 'UTC') DEFAULT now64(3),
    INDEX ix_trajectory trajectory_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX ix_batch batch_id TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = ReplacingMergeTree(row_version)
ORDER BY (run_id, channel, batch_id, group_id, trajectory_id)
COMMENT 'Which trajectories each batch holds';
