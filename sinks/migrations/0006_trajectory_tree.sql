-- Trajectories as trees: each step's parent, the branch that trains, and how often histories drift.

ALTER TABLE steps ADD COLUMN IF NOT EXISTS parent_step_id Nullable(String)
    COMMENT 'The step it goes on from, rewrites or runs beside' AFTER relation;

ALTER TABLE trajectories ADD COLUMN IF NOT EXISTS branches UInt32 COMMENT 'Superseded steps left out' AFTER steps;

ALTER TABLE trajectories ADD COLUMN IF NOT EXISTS trained_tip_step_id Nullable(String)
    COMMENT 'Last step of the branch that trains' AFTER branches;

ALTER TABLE trajectories ADD COLUMN IF NOT EXISTS trained_by LowCardinality(String)
    COMMENT 'Name of the rule that chose that branch' AFTER trained_tip_step_id;

-- A view keeps the columns it was made with.
CREATE OR REPLACE VIEW trajectories_final AS
SELECT
    t.* REPLACE (if(r.revision > 0, r.reward, t.reward) AS reward),
    r.revision AS revision
FROM trajectories AS t FINAL
LEFT JOIN (SELECT run_id, group_id, trajectory_id, reward, revision FROM revisions FINAL) AS r
    USING (run_id, group_id, trajectory_id);

CREATE OR REPLACE VIEW steps_final AS
SELECT
    s.* REPLACE (if(r.revision > 0, r.reward, s.reward) AS reward)
FROM steps AS s FINAL
LEFT JOIN (SELECT run_id, group_id, trajectory_id, reward, revision FROM revisions FINAL) AS r
    USING (run_id, group_id, trajectory_id);

CREATE OR REPLACE VIEW drift_ledger AS
SELECT
    run_id,
    channel,
    countIf(s.relation = 'root' AND NOT s.superseded) AS root,
    countIf(s.relation = 'extends' AND NOT s.superseded) AS extends,
    countIf(s.relation = 'rewritten' AND NOT s.superseded) AS rewritten,
    countIf(s.relation = 'sub_agent' AND NOT s.superseded) AS sub_agent,
    countIf(s.relation = 'side_call' AND NOT s.superseded) AS side_call,
    countIf(s.superseded) AS superseded,
    count() AS steps
FROM steps AS s FINAL
GROUP BY run_id, channel;
