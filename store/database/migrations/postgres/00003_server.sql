-- What a server needs beside the runs: when they began and ended, the results as
-- they came, log-ins, and what is set for all instances together.
-- +goose Up
ALTER TABLE kbserve.planned_run ADD COLUMN started_at timestamptz;
ALTER TABLE kbserve.planned_run ADD COLUMN finished_at timestamptz;
CREATE INDEX planned_run_started ON kbserve.planned_run (started_at) WHERE started_at IS NOT NULL;
CREATE INDEX planned_run_finished ON kbserve.planned_run (gpu, mode, finished_at) WHERE finished_at IS NOT NULL;

ALTER TABLE kbserve.board ADD COLUMN task_harness text NOT NULL DEFAULT '';
ALTER TABLE kbserve.board ADD COLUMN show_code text NOT NULL DEFAULT 'after';
ALTER TABLE kbserve.board ADD COLUMN reuse boolean NOT NULL DEFAULT false;
ALTER TABLE kbserve.board ADD COLUMN version bigint NOT NULL DEFAULT 0;

CREATE TABLE kbserve.report (
    run_id        text PRIMARY KEY REFERENCES kbserve.planned_run (run_id) ON DELETE CASCADE,
    submission_id int NOT NULL REFERENCES leaderboard.submission (id) ON DELETE CASCADE,
    body          bytea NOT NULL,
    created_at    timestamptz NOT NULL
);
CREATE INDEX report_submission ON kbserve.report (submission_id);

CREATE TABLE kbserve.session (
    hash       text PRIMARY KEY,
    user_id    text NOT NULL REFERENCES leaderboard.user_info (id) ON DELETE CASCADE,
    created_at timestamptz NOT NULL,
    until      timestamptz NOT NULL
);
CREATE INDEX session_owner ON kbserve.session (user_id);

CREATE TABLE kbserve.setting (
    name  text PRIMARY KEY,
    value text NOT NULL
);

CREATE TABLE kbserve.announced (
    leaderboard_id int NOT NULL REFERENCES leaderboard.leaderboard (id) ON DELETE CASCADE,
    gpu            text NOT NULL,
    top            text NOT NULL,
    PRIMARY KEY (leaderboard_id, gpu)
);
