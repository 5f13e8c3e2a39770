-- What the trainer did.

CREATE TABLE IF NOT EXISTS policy_versions
(
    policy LowCardinality(String),
    version Int64 COMMENT 'Bumped by each weight publication',
    weights_uri String,
    digest String COMMENT 'sha256:<hex> over the exported weight files, in name order',
    run_id LowCardinality(String) COMMENT 'Empty if none',
    batch_id String COMMENT 'The batch whose update produced it; empty if none',
    rollback_of Nullable(Int64),
    event_time DateTime64(3, 'UTC'),
    kafka_topic LowCardinality(String),
    kafka_partition UInt32,
    kafka_offset UInt64,
    row_version UInt64,
    ingested_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = ReplacingMergeTree(row_version)
ORDER BY (policy, version)
COMMENT 'Published weights';

CREATE TABLE IF NOT EXISTS training_steps
(
    run_id LowCardinality(String),
    channel LowCardinality(String),
    batch_id String,
    optimizer_step UInt64,
    policy LowCardinality(String),
    policy_version Int64 COMMENT 'Version trained, before the update is published',
    metrics Map(LowCardinality(String), Float64),
    details String COMMENT 'JSON object' CODEC(ZSTD(3)),
    event_time DateTime64(3, 'UTC'),
    kafka_topic LowCardinality(String),
    kafka_partition UInt32,
    kafka_offset UInt64,
    row_version UInt64,
    ingested_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = ReplacingMergeTree(row_version)
ORDER BY (run_id, channel, batch_id, optimizer_step)
COMMENT 'One row per optimiser step';

CREATE TABLE IF NOT EXISTS batch_consumptions
(
    run_id LowCardinality(String),
    channel LowCardinality(String),
    batch_id String,
    consumer LowCardinality(String),
    policy LowCardinality(String),
    policy_version Int64,
    event_time DateTime64(3, 'UTC'),
    kafka_topic LowCardinality(String),
    kafka_partition UInt32,
    kafka_offset UInt64,
    row_version UInt64,
    ingested_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = ReplacingMergeTree(row_version)
ORDER BY (run_id, channel, batch_id, consumer)
COMMENT 'Batches that a trainer took';
