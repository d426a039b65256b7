-- Log-in links, which are not sessions; who a user's log-in is at; and the runs that users
-- began of late, which stay when their submissions are deleted. An index counts unfinished runs.
-- +goose Up
CREATE TABLE kbserve.link (
    hash    text PRIMARY KEY,
    user_id text NOT NULL REFERENCES leaderboard.user_info (id) ON DELETE CASCADE,
    until   timestamptz NOT NULL
);
CREATE INDEX link_owner ON kbserve.link (user_id);

CREATE TABLE kbserve.account (
    user_id  text PRIMARY KEY REFERENCES leaderboard.user_info (id) ON DELETE CASCADE,
    provider text NOT NULL
);

CREATE TABLE kbserve.begun_run (
    run_id   text PRIMARY KEY,
    user_id  text NOT NULL REFERENCES leaderboard.user_info (id) ON DELETE CASCADE,
    gpu      text NOT NULL,
    begun_at timestamptz NOT NULL
);
CREATE INDEX begun_run_time ON kbserve.begun_run (begun_at);

INSERT INTO kbserve.begun_run (run_id, user_id, gpu, begun_at)
SELECT p.run_id, s.user_id, p.gpu, p.started_at FROM kbserve.planned_run p JOIN leaderboard.submission s ON s.id = p.submission_id
WHERE p.started_at > now() - interval '1 hour';

CREATE INDEX planned_run_unfinished ON kbserve.planned_run (gpu, submission_id) WHERE state <> 'finished' AND again = '';
