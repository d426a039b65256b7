-- What a task asks for beyond Kernelbot's keys, as JSON; '' is task_harness alone.
-- +goose Up
ALTER TABLE kbserve.board ADD COLUMN task_extension text NOT NULL DEFAULT '';
