-- Further evaluations of submissions that have finished: whether their results
-- take the place of the ones there are.
-- +goose Up
ALTER TABLE kbserve_planned_run ADD COLUMN replaces boolean NOT NULL DEFAULT false;
