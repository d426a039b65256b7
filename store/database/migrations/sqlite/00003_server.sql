-- What a server needs beside the runs: when they began and ended, the results as
-- they came, log-ins, and what is set for all instances together.
-- +goose Up
ALTER TABLE kbserve_planned_run ADD COLUMN started_at text;
ALTER TABLE kbserve_planned_run ADD COLUMN finished_at text;
CREATE INDEX planned_run_started ON kbserve_planned_run (started_at) WHERE started_at IS NOT NULL;
CREATE INDEX planned_run_finished ON kbserve_planned_run (gpu, mode, finished_at) WHERE finished_at IS NOT NULL;

ALTER TABLE kbserve_board ADD COLUMN task_harness text NOT NULL DEFAULT '';
ALTER TABLE kbserve_board ADD COLUMN show_code text NOT NULL DEFAULT 'after';
ALTER TABLE kbserve_board ADD COLUMN reuse boolean NOT NULL DEFAULT false;
ALTER TABLE kbserve_board ADD COLUMN version integer NOT NULL DEFAULT 0;

CREATE TABLE kbserve_report (
    run_id        text PRIMARY KEY REFERENCES kbserve_planned_run (run_id) ON DELETE CASCADE,
    submission_id integer NOT NULL REFERENCES submission (id) ON DELETE CASCADE,
    body          blob NOT NULL,
    created_at    text NOT NULL
);
CREATE INDEX report_submission ON kbserve_report (submission_id);

CREATE TABLE kbserve_session (
    hash       text PRIMARY KEY,
    user_id    text NOT NULL REFERENCES user_info (id) ON DELETE CASCADE,
    created_at text NOT NULL,
    until      text NOT NULL
);
CREATE INDEX session_owner ON kbserve_session (user_id);

CREATE TABLE kbserve_setting (
    name  text PRIMARY KEY,
    value text NOT NULL
);

CREATE TABLE kbserve_announced (
    leaderboard_id integer NOT NULL REFERENCES leaderboard (id) ON DELETE CASCADE,
    gpu            text NOT NULL,
    top            text NOT NULL,
    PRIMARY KEY (leaderboard_id, gpu)
);
