-- Log-in links, which are not sessions; who a user's log-in is at; and the runs that users
-- began of late, which stay when their submissions are deleted. An index counts unfinished runs.
-- +goose Up
CREATE TABLE kbserve_link (
    hash    text PRIMARY KEY,
    user_id text NOT NULL REFERENCES user_info (id) ON DELETE CASCADE,
    until   text NOT NULL
);
CREATE INDEX link_owner ON kbserve_link (user_id);

CREATE TABLE kbserve_account (
    user_id  text PRIMARY KEY REFERENCES user_info (id) ON DELETE CASCADE,
    provider text NOT NULL
);

CREATE TABLE kbserve_begun_run (
    run_id   text PRIMARY KEY,
    user_id  text NOT NULL REFERENCES user_info (id) ON DELETE CASCADE,
    gpu      text NOT NULL,
    begun_at text NOT NULL
);
CREATE INDEX begun_run_time ON kbserve_begun_run (begun_at);

INSERT INTO kbserve_begun_run (run_id, user_id, gpu, begun_at)
SELECT p.run_id, s.user_id, p.gpu, p.started_at FROM kbserve_planned_run p JOIN submission s ON s.id = p.submission_id
WHERE p.started_at > strftime('%Y-%m-%d %H:%M:%f000+00', 'now', '-1 hour');

CREATE INDEX planned_run_unfinished ON kbserve_planned_run (gpu, submission_id) WHERE state <> 'finished' AND again = '';
