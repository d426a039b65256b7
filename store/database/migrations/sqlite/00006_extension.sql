-- What a task asks for beyond Kernelbot's keys: a harness, or a JSON object; '' in rows that are
-- older, which have task_harness. And whether a proof showed that the isolated harness works on the machine's GPU.
-- +goose Up
ALTER TABLE kbserve_board ADD COLUMN task_extension text NOT NULL DEFAULT '';
ALTER TABLE kbserve_run_evidence ADD COLUMN proved boolean NOT NULL DEFAULT false;
