-- The branches of a trajectory and why one trains, whole: what the seal says, for when the log has expired.

ALTER TABLE trajectories ADD COLUMN IF NOT EXISTS branch_list String
    COMMENT 'Every branch, JSON array; empty in rows older than this column' CODEC(ZSTD(3)) AFTER branches;

ALTER TABLE trajectories ADD COLUMN IF NOT EXISTS trained_branch String
    COMMENT 'The branch that trains, JSON object; empty: none, or a row older than this column'
    CODEC(ZSTD(3)) AFTER trained_by;

CREATE OR REPLACE VIEW trajectories_final AS
SELECT
    t.* REPLACE (if(r.revision > 0, r.reward, t.reward) AS reward),
    r.revision AS revision,
    r.late_steps AS late_steps
FROM trajectories AS t FINAL
LEFT JOIN (SELECT run_id, group_id, trajectory_id, reward, revision, late_steps FROM revisions FINAL) AS r
    USING (run_id, group_id, trajectory_id);
