-- The outcome that the result of a planned run names, or the one that says why there is no result; '' in
-- older rows. A public run that failed is the reason why a submission does not rank, also if its secret run failed.
-- +goose Up
ALTER TABLE kbserve_planned_run ADD COLUMN result_outcome text NOT NULL DEFAULT '';
UPDATE kbserve_verdict SET reason = 'public run failed' WHERE reason = 'secret run failed' AND score IS NULL
    AND EXISTS (SELECT 1 FROM runs r WHERE r.submission_id = kbserve_verdict.submission_id AND r.runner = kbserve_verdict.gpu AND NOT r.secret AND NOT r.passed)
    AND NOT EXISTS (SELECT 1 FROM kbserve_planned_run p WHERE p.submission_id = kbserve_verdict.submission_id AND p.gpu = kbserve_verdict.gpu AND NOT p.secret AND p.state <> 'finished');
