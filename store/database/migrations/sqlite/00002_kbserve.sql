-- Our own tables. What points at Kernelbot's rows goes with them.
-- +goose Up
CREATE TABLE kbserve_installation (
    one        integer PRIMARY KEY CHECK (one = 1),
    id         text NOT NULL,
    created_at text NOT NULL
);

CREATE TABLE kbserve_board (
    leaderboard_id integer PRIMARY KEY REFERENCES leaderboard (id) ON DELETE CASCADE,
    harness        text NOT NULL DEFAULT '',
    sandbox        text NOT NULL DEFAULT '',
    clear_timing   boolean NOT NULL DEFAULT false,
    ties           boolean NOT NULL DEFAULT false
);

CREATE TABLE kbserve_gpu_limit (
    leaderboard_id integer NOT NULL REFERENCES leaderboard (id) ON DELETE CASCADE,
    gpu            text NOT NULL,
    mode_category  text NOT NULL CHECK (mode_category IN ('test', 'leaderboard')),
    per_hour       integer NOT NULL CHECK (per_hour >= 0),
    PRIMARY KEY (leaderboard_id, gpu, mode_category)
);

CREATE TABLE kbserve_accepted (
    submission_id integer PRIMARY KEY REFERENCES submission (id) ON DELETE CASCADE,
    gpu           text NOT NULL,
    mode          text NOT NULL,
    late          boolean NOT NULL
);

CREATE TABLE kbserve_planned_run (
    run_id        text PRIMARY KEY,
    submission_id integer NOT NULL REFERENCES submission (id) ON DELETE CASCADE,
    gpu           text NOT NULL,
    mode          text NOT NULL,
    secret        boolean NOT NULL,
    priority      integer NOT NULL,
    state         text NOT NULL,
    outcome       text NOT NULL DEFAULT '',
    build_number  integer NOT NULL DEFAULT 0,
    build_id      text NOT NULL DEFAULT '',
    fence         integer NOT NULL DEFAULT 0,
    lease_owner   text NOT NULL DEFAULT '',
    free_at       text NOT NULL,
    created_at    text NOT NULL,
    changed_at    text NOT NULL
);
CREATE INDEX planned_run_submission ON kbserve_planned_run (submission_id);
CREATE INDEX planned_run_open ON kbserve_planned_run (priority, created_at, run_id) WHERE state <> 'finished';

CREATE TABLE kbserve_run_evidence (
    run_id       integer PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    harness      text NOT NULL,
    self_checked boolean NOT NULL,
    sandbox      text NOT NULL,
    ambiguous    boolean NOT NULL,
    low          double precision,
    high         double precision
);

CREATE TABLE kbserve_verdict (
    submission_id  integer NOT NULL REFERENCES submission (id) ON DELETE CASCADE,
    gpu            text NOT NULL,
    leaderboard_id integer NOT NULL,
    user_id        text NOT NULL,
    ranks          boolean NOT NULL,
    reason         text NOT NULL,
    score          double precision,
    low            double precision,
    high           double precision,
    PRIMARY KEY (submission_id, gpu)
);
CREATE INDEX verdict_user ON kbserve_verdict (leaderboard_id, gpu, user_id, score, submission_id) WHERE ranks;

CREATE TABLE kbserve_standing (
    leaderboard_id integer NOT NULL REFERENCES leaderboard (id) ON DELETE CASCADE,
    gpu            text NOT NULL,
    user_id        text NOT NULL,
    submission_id  integer NOT NULL REFERENCES submission (id) ON DELETE CASCADE,
    score          double precision NOT NULL,
    low            double precision,
    high           double precision,
    PRIMARY KEY (leaderboard_id, gpu, user_id)
);
CREATE INDEX standing_order ON kbserve_standing (leaderboard_id, gpu, score, submission_id);
CREATE INDEX standing_submission ON kbserve_standing (submission_id);
