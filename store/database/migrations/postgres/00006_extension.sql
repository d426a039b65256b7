-- What a task asks for beyond Kernelbot's keys, as JSON; '' is task_harness alone. And whether a
-- proof showed that the isolated harness works on the machine's GPU.
-- +goose Up
ALTER TABLE kbserve.board ADD COLUMN task_extension text NOT NULL DEFAULT '';
ALTER TABLE kbserve.run_evidence ADD COLUMN proved boolean NOT NULL DEFAULT false;
