-- How a board's settings changed: by whom, and why. And its ranking as it was before its
-- submissions were evaluated again: JSON, lists of entries by GPU type.
-- +goose Up
CREATE TABLE kbserve_board_change (
    id             integer PRIMARY KEY,
    leaderboard_id integer NOT NULL REFERENCES leaderboard (id) ON DELETE CASCADE,
    changed_at     text NOT NULL,
    author         text NOT NULL,
    reason         text NOT NULL,
    field          text NOT NULL,
    old            text NOT NULL,
    new            text NOT NULL
);
CREATE INDEX board_change_board ON kbserve_board_change (leaderboard_id, id);

CREATE TABLE kbserve_rejudging (
    leaderboard_id integer PRIMARY KEY REFERENCES leaderboard (id) ON DELETE CASCADE,
    started_at     text NOT NULL,
    author         text NOT NULL,
    reason         text NOT NULL,
    ranking        text NOT NULL
);
