-- Kernelbot's tables, for a database that its own migrations have not made. Where
-- they exist already, nothing of this does anything.
-- +goose Up
CREATE SCHEMA IF NOT EXISTS leaderboard;

CREATE TABLE IF NOT EXISTS leaderboard.leaderboard (
    id          serial PRIMARY KEY,
    name        text NOT NULL UNIQUE,
    deadline    timestamptz NOT NULL,
    task        jsonb NOT NULL,
    creator_id  bigint NOT NULL DEFAULT -1,
    forum_id    bigint NOT NULL,
    secret_seed bigint NOT NULL DEFAULT floor(random() * 2147483648),
    description text NOT NULL,
    visibility  text NOT NULL DEFAULT 'public'
);

CREATE TABLE IF NOT EXISTS leaderboard.gpu_type (
    leaderboard_id int NOT NULL REFERENCES leaderboard.leaderboard (id) ON DELETE CASCADE,
    gpu_type       text NOT NULL,
    PRIMARY KEY (leaderboard_id, gpu_type)
);

CREATE TABLE IF NOT EXISTS leaderboard.templates (
    id             serial PRIMARY KEY,
    leaderboard_id int NOT NULL REFERENCES leaderboard.leaderboard (id),
    lang           text NOT NULL,
    code           text NOT NULL
);

CREATE TABLE IF NOT EXISTS leaderboard.user_info (
    id                text PRIMARY KEY,
    user_name         text,
    cli_id            varchar(255),
    cli_valid         boolean DEFAULT false,
    cli_auth_provider varchar(255),
    created_at        timestamp DEFAULT now(),
    web_auth_id       varchar(255),
    is_banned         boolean NOT NULL DEFAULT false
);

CREATE TABLE IF NOT EXISTS leaderboard.code_files (
    id       serial PRIMARY KEY,
    old_code text,
    code     bytea NOT NULL,
    hash     text NOT NULL GENERATED ALWAYS AS (encode(sha256(code), 'hex')) STORED UNIQUE
);

CREATE TABLE IF NOT EXISTS leaderboard.submission (
    id              serial PRIMARY KEY,
    leaderboard_id  int NOT NULL REFERENCES leaderboard.leaderboard (id),
    file_name       text NOT NULL,
    user_id         text NOT NULL REFERENCES leaderboard.user_info (id),
    code_id         int NOT NULL REFERENCES leaderboard.code_files (id),
    submission_time timestamptz NOT NULL,
    done            boolean DEFAULT false,
    status          text NOT NULL DEFAULT 'active',
    mode_category   text
);

CREATE TABLE IF NOT EXISTS leaderboard.runs (
    id            serial PRIMARY KEY,
    submission_id int NOT NULL REFERENCES leaderboard.submission (id),
    start_time    timestamptz NOT NULL,
    end_time      timestamptz NOT NULL,
    mode          text NOT NULL,
    secret        boolean NOT NULL,
    runner        text NOT NULL,
    score         numeric,
    passed        boolean NOT NULL,
    compilation   jsonb,
    meta          jsonb,
    result        jsonb,
    system_info   jsonb NOT NULL
);

CREATE TABLE IF NOT EXISTS leaderboard.submission_job_status (
    id             serial PRIMARY KEY,
    submission_id  int NOT NULL UNIQUE REFERENCES leaderboard.submission (id) ON DELETE CASCADE,
    status         varchar(255),
    error          text,
    created_at     timestamptz NOT NULL DEFAULT now(),
    last_heartbeat timestamptz
);

CREATE TABLE IF NOT EXISTS leaderboard.rate_limit (
    id                       serial PRIMARY KEY,
    leaderboard_id           int NOT NULL REFERENCES leaderboard.leaderboard (id) ON DELETE CASCADE,
    mode_category            text NOT NULL CHECK (mode_category IN ('test', 'leaderboard')),
    max_submissions_per_hour int NOT NULL CHECK (max_submissions_per_hour >= 0),
    UNIQUE (leaderboard_id, mode_category)
);

CREATE TABLE IF NOT EXISTS leaderboard.draft_code (
    id               serial PRIMARY KEY,
    leaderboard_id   int REFERENCES leaderboard.leaderboard (id) ON DELETE CASCADE,
    user_id          text REFERENCES leaderboard.user_info (id) ON DELETE CASCADE,
    type             text NOT NULL DEFAULT 'general',
    code             bytea NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT now(),
    last_modified_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE IF NOT EXISTS leaderboard.leaderboard_invite (
    id         serial PRIMARY KEY,
    code       text NOT NULL UNIQUE,
    user_id    text REFERENCES leaderboard.user_info (id),
    claimed_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE IF NOT EXISTS leaderboard.leaderboard_invite_scope (
    invite_id      int NOT NULL REFERENCES leaderboard.leaderboard_invite (id) ON DELETE CASCADE,
    leaderboard_id int NOT NULL REFERENCES leaderboard.leaderboard (id) ON DELETE CASCADE,
    PRIMARY KEY (invite_id, leaderboard_id)
);

-- +goose StatementBegin
DO $$
BEGIN
    -- Kernelbot's own indexes, under names of ours, where it has none of its own.
    IF NOT EXISTS (SELECT FROM pg_indexes WHERE schemaname = 'leaderboard' AND tablename = 'runs' AND indexdef LIKE '%(runner, score)%') THEN
        CREATE INDEX kbserve_runs_runner ON leaderboard.runs (runner, score);
        CREATE INDEX kbserve_runs_scored ON leaderboard.runs (submission_id, runner, score) WHERE NOT secret AND score IS NOT NULL AND passed;
        CREATE INDEX kbserve_submission_board ON leaderboard.submission (leaderboard_id);
        CREATE INDEX kbserve_submission_user ON leaderboard.submission (user_id);
        CREATE INDEX kbserve_invite_user ON leaderboard.leaderboard_invite (user_id) WHERE user_id IS NOT NULL;
        CREATE INDEX kbserve_invite_scope_board ON leaderboard.leaderboard_invite_scope (leaderboard_id);
    END IF;
END
$$;
-- +goose StatementEnd

-- The indexes that Kernelbot lacks.
CREATE INDEX IF NOT EXISTS kbserve_runs_submission ON leaderboard.runs (submission_id);
CREATE INDEX IF NOT EXISTS kbserve_user_cli ON leaderboard.user_info (cli_id);
CREATE INDEX IF NOT EXISTS kbserve_user_web ON leaderboard.user_info (web_auth_id);
