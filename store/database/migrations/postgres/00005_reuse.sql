-- What a result was of, so that the same text need not be evaluated again: digests
-- of the task when a submission came and when its result did.
-- +goose Up
ALTER TABLE kbserve.accepted ADD COLUMN task text NOT NULL DEFAULT '';
ALTER TABLE kbserve.report ADD COLUMN task text NOT NULL DEFAULT '';
CREATE INDEX IF NOT EXISTS kbserve_submission_code ON leaderboard.submission (code_id);
