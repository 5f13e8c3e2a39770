-- What is missing of trajectories: steps that came too late, and a ledger of gaps by kind.

ALTER TABLE revisions ADD COLUMN IF NOT EXISTS late_steps UInt32
    COMMENT 'Steps that came after the seal; each is in the dead-letter topic' AFTER rewards;

CREATE OR REPLACE VIEW trajectories_final AS
SELECT
    t.* REPLACE (if(r.revision > 0, r.reward, t.reward) AS reward),
    r.revision AS revision,
    r.late_steps AS late_steps
FROM trajectories AS t FINAL
LEFT JOIN (SELECT run_id, group_id, trajectory_id, reward, revision, late_steps FROM revisions FINAL) AS r
    USING (run_id, group_id, trajectory_id);

CREATE OR REPLACE VIEW gap_ledger AS
SELECT run_id, channel, kind, sum(steps) AS steps, count() AS trajectories
FROM
(
    SELECT run_id, channel, trajectory_id, gap.1 AS kind, gap.2 AS steps
    FROM trajectories FINAL
    ARRAY JOIN JSONExtractKeysAndValues(integrity, 'gaps', 'UInt32') AS gap
    UNION ALL
    SELECT run_id, channel, trajectory_id, 'late', toUInt32(late_steps)
    FROM revisions FINAL
    WHERE late_steps > 0
)
GROUP BY run_id, channel, kind;
