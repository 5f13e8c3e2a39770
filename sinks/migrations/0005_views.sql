-- What analysts read: one row per key, rewards as last revised. Filter by run_id and group_id first.

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

CREATE OR REPLACE VIEW groups_final AS SELECT * FROM groups FINAL;

CREATE OR REPLACE VIEW batches_final AS SELECT * FROM batches FINAL;

CREATE OR REPLACE VIEW open_trajectories AS
SELECT * FROM registrations FINAL
WHERE (run_id, group_id, trajectory_id) NOT IN (SELECT run_id, group_id, trajectory_id FROM trajectories);
