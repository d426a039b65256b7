-- Submissions that an organizer's hook is asked or told about: one row each, from its
-- acceptance until the hook was told of its result.
-- +goose Up
CREATE TABLE kbserve_hook (
    submission_id integer PRIMARY KEY REFERENCES submission (id) ON DELETE CASCADE,
    delivery      text NOT NULL,
    phase         text NOT NULL,
    tries         integer NOT NULL DEFAULT 0,
    error         text NOT NULL DEFAULT '',
    fence         integer NOT NULL DEFAULT 0,
    free_at       text NOT NULL,
    changed_at    text NOT NULL
);
CREATE INDEX hook_free ON kbserve_hook (free_at);
