-- Rollouts: begun, sealed, revised, and their rewards.

CREATE TABLE IF NOT EXISTS registrations
(
    run_id LowCardinality(String),
    channel LowCardinality(String),
    group_id String,
    trajectory_id String,
    prompt_id String,
    round UInt32,
    rollouts UInt32 COMMENT 'n: trajectories the group waits for',
    rollout_index Nullable(UInt32),
    policy LowCardinality(String),
    registered_by LowCardinality(String) COMMENT 'client, or gateway where a first call implied it',
    parent_trajectory_id Nullable(String),
    replaces_trajectory_id Nullable(String),
    metadata String COMMENT 'JSON object' CODEC(ZSTD(3)),
    event_time DateTime64(3, 'UTC'),
    kafka_topic LowCardinality(String),
    kafka_partition UInt32,
    kafka_offset UInt64,
    row_version UInt64,
    ingested_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = ReplacingMergeTree(row_version)
ORDER BY (run_id, channel, group_id, trajectory_id)
COMMENT 'Rollouts that began; those without a row in trajectories are still open';

CREATE TABLE IF NOT EXISTS trajectories
(
    run_id LowCardinality(String),
    group_id String,
    trajectory_id String,
    prompt_id String,
    channel LowCardinality(String),
    round UInt32,
    rollouts UInt32 COMMENT 'n: trajectories the group waits for',
    rollout_index Nullable(UInt32),
    policy LowCardinality(String),
    outcome LowCardinality(String) COMMENT 'succeeded, failed, abandoned, errored',
    outcome_reason String,
    seal_reason LowCardinality(String) COMMENT 'completed, idle_timeout, max_steps, max_bytes',
    reward Nullable(Float64) COMMENT 'As sealed; trajectories_final has the newest',
    rewards String COMMENT 'All named rewards as sealed, JSON array' CODEC(ZSTD(3)),
    steps UInt32,
    prompt_tokens UInt64 COMMENT 'Sum over steps of the whole prompts, tokens',
    response_tokens UInt64 COMMENT 'Sum over steps, tokens',
    policy_version_min Nullable(Int64),
    policy_version_max Nullable(Int64),
    clean Bool COMMENT 'Every step can be trusted',
    integrity String COMMENT 'Integrity report, JSON object',
    parent_trajectory_id Nullable(String),
    replaces_trajectory_id Nullable(String),
    metadata String COMMENT 'JSON object' CODEC(ZSTD(3)),
    registered_at DateTime64(3, 'UTC'),
    event_time DateTime64(3, 'UTC') COMMENT 'When it was sealed',
    kafka_topic LowCardinality(String),
    kafka_partition UInt32,
    kafka_offset UInt64,
    row_version UInt64,
    ingested_at DateTime64(3, 'UTC') DEFAULT now64(3),
    INDEX ix_trajectory trajectory_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX ix_time event_time TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(row_version)
ORDER BY (run_id, group_id, trajectory_id)
SETTINGS index_granularity = 1024
COMMENT 'One row per sealed rollout';

CREATE TABLE IF NOT EXISTS revisions
(
    run_id LowCardinality(String),
    group_id String,
    trajectory_id String,
    prompt_id String,
    channel LowCardinality(String),
    revision UInt32 COMMENT '1, 2, ...: how many times it was revised',
    reward Nullable(Float64) COMMENT 'The reward that trains from now on',
    rewards String COMMENT 'All named rewards, JSON array' CODEC(ZSTD(3)),
    event_time DateTime64(3, 'UTC'),
    kafka_topic LowCardinality(String),
    kafka_partition UInt32,
    kafka_offset UInt64,
    row_version UInt64 COMMENT 'By revision, then by time',
    ingested_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = ReplacingMergeTree(row_version)
ORDER BY (run_id, group_id, trajectory_id)
COMMENT 'Newest reward of trajectories that were revised after the seal';

CREATE TABLE IF NOT EXISTS rewards
(
    prompt_id String,
    trajectory_id String,
    step_id String COMMENT 'Empty: for the whole trajectory',
    name LowCardinality(String),
    value Float64,
    version UInt32 COMMENT 'A higher version of the same name and step replaces the lower',
    given_by LowCardinality(String),
    extra String COMMENT 'JSON object' CODEC(ZSTD(3)),
    event_id String,
    event_time DateTime64(3, 'UTC'),
    kafka_topic LowCardinality(String),
    kafka_partition UInt32,
    kafka_offset UInt64,
    row_version UInt64 COMMENT 'By version, then by time',
    ingested_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = ReplacingMergeTree(row_version)
ORDER BY (prompt_id, trajectory_id, step_id, name)
COMMENT 'Newest version of each named reward';
