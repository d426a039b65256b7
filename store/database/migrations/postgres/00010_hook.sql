-- Submissions that an organizer's hook is asked or told about: one row each, from its
-- acceptance until the hook was told of its result.
-- +goose Up
CREATE TABLE kbserve.hook (
    submission_id int PRIMARY KEY REFERENCES leaderboard.submission (id) ON DELETE CASCADE,
    delivery      text NOT NULL,
    phase         text NOT NULL,
    tries         int NOT NULL DEFAULT 0,
    error         text NOT NULL DEFAULT '',
    fence         bigint NOT NULL DEFAULT 0,
    free_at       timestamptz NOT NULL,
    changed_at    timestamptz NOT NULL
);
CREATE INDEX hook_free ON kbserve.hook (free_at);
