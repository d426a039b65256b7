-- Further evaluations of submissions that have finished: '' for a first one, beside
-- for one that adds its runs, instead for one whose runs take the place of others.
-- +goose Up
ALTER TABLE kbserve.planned_run ADD COLUMN again text NOT NULL DEFAULT '';
