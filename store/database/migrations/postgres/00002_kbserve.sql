-- Our own tables. What points at Kernelbot's rows goes with them.
-- +goose Up
CREATE TABLE kbserve.installation (
    one        int PRIMARY KEY CHECK (one = 1),
    id         text NOT NULL,
    created_at timestamptz NOT NULL
);

CREATE TABLE kbserve.board (
    leaderboard_id int PRIMARY KEY REFERENCES leaderboard.leaderboard (id) ON DELETE CASCADE,
    harness        text NOT NULL DEFAULT '',
    sandbox        text NOT NULL DEFAULT '',
    clear_timing   boolean NOT NULL DEFAULT false,
    ties           boolean NOT NULL DEFAULT false
);

CREATE TABLE kbserve.gpu_limit (
    leaderboard_id int NOT NULL REFERENCES leaderboard.leaderboard (id) ON DELETE CASCADE,
    gpu            text NOT NULL,
    mode_category  text NOT NULL CHECK (mode_category IN ('test', 'leaderboard')),
    per_hour       int NOT NULL CHECK (per_hour >= 0),
    PRIMARY KEY (leaderboard_id, gpu, mode_category)
);

CREATE TABLE kbserve.accepted (
    submission_id int PRIMARY KEY REFERENCES leaderboard.submission (id) ON DELETE CASCADE,
    gpu           text NOT NULL,
    mode          text NOT NULL,
    late          boolean NOT NULL
);

CREATE TABLE kbserve.planned_run (
    run_id        text PRIMARY KEY,
    submission_id int NOT NULL REFERENCES leaderboard.submission (id) ON DELETE CASCADE,
    gpu           text NOT NULL,
    mode          text NOT NULL,
    secret        boolean NOT NULL,
    priority      int NOT NULL,
    state         text NOT NULL,
    outcome       text NOT NULL DEFAULT '',
    build_number  bigint NOT NULL DEFAULT 0,
    build_id      text NOT NULL DEFAULT '',
    fence         bigint NOT NULL DEFAULT 0,
    lease_owner   text NOT NULL DEFAULT '',
    free_at       timestamptz NOT NULL,
    created_at    timestamptz NOT NULL,
    changed_at    timestamptz NOT NULL
);
CREATE INDEX planned_run_submission ON kbserve.planned_run (submission_id);
CREATE INDEX planned_run_open ON kbserve.planned_run (priority, created_at, run_id) WHERE state <> 'finished';

CREATE TABLE kbserve.run_evidence (
    run_id       int PRIMARY KEY REFERENCES leaderboard.runs (id) ON DELETE CASCADE,
    harness      text NOT NULL,
    self_checked boolean NOT NULL,
    sandbox      text NOT NULL,
    ambiguous    boolean NOT NULL,
    low          double precision,
    high         double precision
);

CREATE TABLE kbserve.verdict (
    submission_id  int NOT NULL REFERENCES leaderboard.submission (id) ON DELETE CASCADE,
    gpu            text NOT NULL,
    leaderboard_id int NOT NULL,
    user_id        text NOT NULL,
    ranks          boolean NOT NULL,
    reason         text NOT NULL,
    score          double precision,
    low            double precision,
    high           double precision,
    PRIMARY KEY (submission_id, gpu)
);
CREATE INDEX verdict_user ON kbserve.verdict (leaderboard_id, gpu, user_id, score, submission_id) WHERE ranks;

CREATE TABLE kbserve.standing (
    leaderboard_id int NOT NULL REFERENCES leaderboard.leaderboard (id) ON DELETE CASCADE,
    gpu            text NOT NULL,
    user_id        text NOT NULL,
    submission_id  int NOT NULL REFERENCES leaderboard.submission (id) ON DELETE CASCADE,
    score          double precision NOT NULL,
    low            double precision,
    high           double precision,
    PRIMARY KEY (leaderboard_id, gpu, user_id)
);
CREATE INDEX standing_order ON kbserve.standing (leaderboard_id, gpu, score, submission_id);
CREATE INDEX standing_submission ON kbserve.standing (submission_id);
