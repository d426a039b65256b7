-- Kernelbot's tables, in a file of ours: times are text in UTC with microseconds, JSON is
-- text, and the hash of code is written by the store.
-- +goose Up
CREATE TABLE leaderboard (
    id          integer PRIMARY KEY AUTOINCREMENT,
    name        text NOT NULL UNIQUE,
    deadline    text NOT NULL,
    task        text NOT NULL,
    creator_id  integer NOT NULL DEFAULT -1,
    forum_id    integer NOT NULL,
    secret_seed integer NOT NULL DEFAULT (random() & 2147483647),
    description text NOT NULL,
    visibility  text NOT NULL DEFAULT 'public'
);

CREATE TABLE gpu_type (
    leaderboard_id integer NOT NULL REFERENCES leaderboard (id) ON DELETE CASCADE,
    gpu_type       text NOT NULL,
    PRIMARY KEY (leaderboard_id, gpu_type)
);

CREATE TABLE templates (
    id             integer PRIMARY KEY AUTOINCREMENT,
    leaderboard_id integer NOT NULL REFERENCES leaderboard (id),
    lang           text NOT NULL,
    code           text NOT NULL
);

CREATE TABLE user_info (
    id                text PRIMARY KEY,
    user_name         text,
    cli_id            text,
    cli_valid         boolean DEFAULT false,
    cli_auth_provider text,
    created_at        text DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00', 'now')),
    web_auth_id       text,
    is_banned         boolean NOT NULL DEFAULT false
);

CREATE TABLE code_files (
    id       integer PRIMARY KEY AUTOINCREMENT,
    old_code text,
    code     blob NOT NULL,
    hash     text NOT NULL UNIQUE
);

CREATE TABLE submission (
    id              integer PRIMARY KEY AUTOINCREMENT,
    leaderboard_id  integer NOT NULL REFERENCES leaderboard (id),
    file_name       text NOT NULL,
    user_id         text NOT NULL REFERENCES user_info (id),
    code_id         integer NOT NULL REFERENCES code_files (id),
    submission_time text NOT NULL,
    done            boolean DEFAULT false,
    status          text NOT NULL DEFAULT 'active',
    mode_category   text
);

CREATE TABLE runs (
    id            integer PRIMARY KEY AUTOINCREMENT,
    submission_id integer NOT NULL REFERENCES submission (id),
    start_time    text NOT NULL,
    end_time      text NOT NULL,
    mode          text NOT NULL,
    secret        boolean NOT NULL,
    runner        text NOT NULL,
    score         real,
    passed        boolean NOT NULL,
    compilation   text,
    meta          text,
    result        text,
    system_info   text NOT NULL
);

CREATE TABLE submission_job_status (
    id             integer PRIMARY KEY AUTOINCREMENT,
    submission_id  integer NOT NULL UNIQUE REFERENCES submission (id) ON DELETE CASCADE,
    status         text,
    error          text,
    created_at     text NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00', 'now')),
    last_heartbeat text
);

CREATE TABLE rate_limit (
    id                       integer PRIMARY KEY AUTOINCREMENT,
    leaderboard_id           integer NOT NULL REFERENCES leaderboard (id) ON DELETE CASCADE,
    mode_category            text NOT NULL CHECK (mode_category IN ('test', 'leaderboard')),
    max_submissions_per_hour integer NOT NULL CHECK (max_submissions_per_hour >= 0),
    UNIQUE (leaderboard_id, mode_category)
);

CREATE TABLE draft_code (
    id               integer PRIMARY KEY AUTOINCREMENT,
    leaderboard_id   integer REFERENCES leaderboard (id) ON DELETE CASCADE,
    user_id          text REFERENCES user_info (id) ON DELETE CASCADE,
    type             text NOT NULL DEFAULT 'general',
    code             blob NOT NULL,
    created_at       text NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00', 'now')),
    last_modified_at text NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00', 'now'))
);

CREATE TABLE leaderboard_invite (
    id         integer PRIMARY KEY AUTOINCREMENT,
    code       text NOT NULL UNIQUE,
    user_id    text REFERENCES user_info (id),
    claimed_at text,
    created_at text NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00', 'now'))
);

CREATE TABLE leaderboard_invite_scope (
    invite_id      integer NOT NULL REFERENCES leaderboard_invite (id) ON DELETE CASCADE,
    leaderboard_id integer NOT NULL REFERENCES leaderboard (id) ON DELETE CASCADE,
    PRIMARY KEY (invite_id, leaderboard_id)
);

CREATE INDEX runs_runner ON runs (runner, score);
CREATE INDEX runs_submission ON runs (submission_id);
CREATE INDEX submission_board ON submission (leaderboard_id);
CREATE INDEX submission_user ON submission (user_id, submission_time);
CREATE INDEX user_cli ON user_info (cli_id);
CREATE INDEX user_web ON user_info (web_auth_id);
CREATE INDEX invite_user ON leaderboard_invite (user_id) WHERE user_id IS NOT NULL;
CREATE INDEX invite_scope_board ON leaderboard_invite_scope (leaderboard_id);
