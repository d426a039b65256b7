# A harness that checks itself, as careless as the published ones: one spawned
# worker makes the inputs, imports the submission, times it and checks it.
import copy
import dataclasses
import math
import multiprocessing
import os
import sys
import time

from reference import check_implementation, generate_input
from utils import set_seed


@dataclasses.dataclass
class Stats:
    runs: int
    mean: float
    std: float
    err: float
    best: float
    worst: float


def calculate_stats(durations):
    runs = len(durations)
    mean = sum(durations) / runs
    std = math.sqrt(sum((x - mean) ** 2 for x in durations) / (runs - 1))
    return Stats(runs, mean, std, std / math.sqrt(runs), float(min(durations)), float(max(durations)))


def run_test(args):
    from submission import custom_kernel

    data = generate_input(**args)
    check_copy = copy.deepcopy(data)
    output = custom_kernel(data)
    return check_implementation(check_copy, output)


def run_benchmark(args, recheck):
    from submission import custom_kernel

    data = generate_input(**args)
    check_copy = copy.deepcopy(data)
    good, message = check_implementation(check_copy, custom_kernel(data))
    if not good:
        return message
    durations = []
    for _ in range(20):
        if recheck:
            args["seed"] += 13
            data = generate_input(**args)
            check_copy = copy.deepcopy(data)
        start = time.perf_counter_ns()
        output = custom_kernel(data)
        durations.append(time.perf_counter_ns() - start)
        if recheck:
            good, message = check_implementation(check_copy, output)
            if not good:
                return message
    return calculate_stats(durations)


def parse(line, seed):
    args = {k.strip(): int(v) for k, v in (part.split(":") for part in line.split(";"))}
    if seed is not None:
        a = args["seed"]
        args["seed"] = a + (a + seed) * (a + seed + 1) // 2
    return args


def main():
    report = os.fdopen(int(os.environ["POPCORN_FD"]), "w")
    os.set_inheritable(report.fileno(), False)
    mode = sys.argv[1]
    seed = os.getenv("POPCORN_SEED")
    os.unsetenv("POPCORN_SEED")
    seed = int(seed) if seed else None
    set_seed(seed or 42)

    def log(key, value):
        print(f"{key}: {value}", file=report, flush=True)

    with open(sys.argv[2]) as file:
        specs = file.read().splitlines()
    kind = "test" if mode == "test" else "benchmark"
    passed = True
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        log(f"{kind}-count", len(specs))
        for i, spec in enumerate(specs):
            log(f"{kind}.{i}.spec", spec)
            args = parse(spec, seed)
            if mode == "test":
                good, message = pool.apply(run_test, (args,))
                log(f"test.{i}.status", "pass" if good else "fail")
                if not good:
                    log(f"test.{i}.error", message)
            else:
                result = pool.apply(run_benchmark, (args, mode == "leaderboard"))
                good = isinstance(result, Stats)
                if good:
                    for field in dataclasses.fields(Stats):
                        log(f"benchmark.{i}.{field.name}", getattr(result, field.name))
                else:
                    log(f"benchmark.{i}.status", "fail")
                    log(f"benchmark.{i}.error", result)
            passed = passed and good
        log("check", "pass" if passed else "fail")
    return 0 if passed else 112


if __name__ == "__main__":
    sys.exit(main())
