-- The outcome that the result of a planned run names, or the one that says why there is no result; '' in
-- older rows. A public run that failed is the reason why a submission does not rank, also if its secret run failed.
-- +goose Up
ALTER TABLE kbserve.planned_run ADD COLUMN result_outcome text NOT NULL DEFAULT '';
UPDATE kbserve.verdict v SET reason = 'public run failed' WHERE v.reason = 'secret run failed' AND v.score IS NULL
    AND EXISTS (SELECT 1 FROM leaderboard.runs r WHERE r.submission_id = v.submission_id AND r.runner = v.gpu AND NOT r.secret AND NOT r.passed)
    AND NOT EXISTS (SELECT 1 FROM kbserve.planned_run p WHERE p.submission_id = v.submission_id AND p.gpu = v.gpu AND NOT p.secret AND p.state <> 'finished');
