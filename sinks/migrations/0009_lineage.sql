-- From what was trained to what is known now, and what groups asked for besides decisions.

CREATE TABLE IF NOT EXISTS group_notices
(
    run_id LowCardinality(String),
    channel LowCardinality(String),
    group_id String,
    event_id String,
    notice LowCardinality(String) COMMENT 'rollout_wanted, rollouts_conflicted',
    prompt_id String,
    round UInt32,
    trajectory_id String COMMENT 'The lost rollout, or the one registered with another n',
    rollouts UInt32 COMMENT 'n of the group',
    reason String,
    event_time DateTime64(3, 'UTC'),
    kafka_topic LowCardinality(String),
    kafka_partition UInt32,
    kafka_offset UInt64,
    row_version UInt64,
    ingested_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = ReplacingMergeTree(row_version)
ORDER BY (run_id, channel, group_id, event_id)
COMMENT 'Replacements that groups asked for, and conflicts of n';

CREATE OR REPLACE VIEW lineage AS
SELECT
    m.run_id AS run_id,
    m.channel AS channel,
    m.batch_id AS batch_id,
    m.group_id AS group_id,
    m.trajectory_id AS trajectory_id,
    m.group_version AS trained_version,
    m.reward AS trained_reward,
    d.decision AS decision,
    d.newest AS newest_version,
    if(t.revision > 0, t.reward, m.reward) AS newest_reward,
    ifNull(trained_reward != newest_reward, isNull(trained_reward) != isNull(newest_reward)) AS reward_changed,
    c.consumer AS consumer,
    c.policy_version AS policy_version
FROM batch_members AS m FINAL
LEFT JOIN
(
    SELECT
        group_id,
        argMaxIf(g.decision, g.version, g.decision != 'group_revised') AS decision,
        max(g.version) AS newest
    FROM group_decisions AS g FINAL
    GROUP BY group_id
) AS d ON d.group_id = m.group_id
LEFT JOIN (SELECT trajectory_id, reward, revision FROM revisions FINAL) AS t ON t.trajectory_id = m.trajectory_id
LEFT JOIN (SELECT batch_id, consumer, policy_version FROM batch_consumptions FINAL) AS c ON c.batch_id = m.batch_id;
