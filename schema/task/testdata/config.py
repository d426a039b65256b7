"""Builds the evaluator's configuration from a task.yml: the other side of TestPayloadEqualsPythons."""
import json
import pathlib
import sys

import yaml

path, submission, mode, arch = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4] or None
spec = yaml.safe_load(path.read_text())
texts = {}
for f in spec["files"]:
    here = f["source"] == "@SUBMISSION@"
    texts[f["name"]] = submission if here else (path.parent / f["source"]).read_text()
config = spec["config"]
if spec["lang"] == "py":
    # No main file where kbrun judges, as our own key says.
    out = {"main": config.get("main", "") if spec.get("harness") == "isolated" else config["main"], "sources": texts}
else:
    compiled = config["sources"]
    out = {
        "sources": {n: t for n, t in texts.items() if n in compiled},
        "headers": {n: t for n, t in texts.items() if n not in compiled},
        "defines": config.get("defines", {}),
        "compile_flags": config.get("compile_flags", []),
        "include_dirs": config.get("include_dirs", []),
    }
out["lang"], out["arch"] = spec["lang"], arch
out["benchmarks"], out["tests"] = spec.get("benchmarks", []), spec.get("tests", [])
out["mode"] = mode
for limit in "test_timeout", "benchmark_timeout", "ranked_timeout":
    out[limit] = spec.get(limit, 180)
out["ranking_by"] = spec.get("ranking_by", "last")
out["seed"] = spec.get("seed")
out["multi_gpu"] = spec.get("multi_gpu", False)
if spec.get("harness"):
    out["harness"] = spec["harness"]
print(json.dumps(out))
