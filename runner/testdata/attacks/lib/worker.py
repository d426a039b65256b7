# A harness as careless as the common ones: a spawned worker imports the
# submission and checks its answers itself; the judge reports what it says.
import multiprocessing
import os
import sys
import time


def parse(line):
    return {k.strip(): int(v) for k, v in (part.split(":") for part in line.split(";"))}


def answer(n, seed):
    return (n * 31 + seed * 17) % 1000003


def judge(args, repeats):
    from submission import kernel

    times = []
    for i in range(repeats):
        seed = args["seed"] + 13 * i
        start = time.perf_counter_ns()
        got = kernel(args["n"], seed)
        times.append(max(1000, time.perf_counter_ns() - start))
        if got != answer(args["n"], seed):
            return f"got {got}, want another number"
    return times


def main():
    mode = sys.argv[1]
    report = os.fdopen(int(os.environ["POPCORN_FD"]), "w")
    os.set_inheritable(report.fileno(), False)
    secret = int(os.getenv("POPCORN_SEED", "0"))
    os.unsetenv("POPCORN_SEED")

    def log(key, value):
        print(f"{key}: {value}", file=report, flush=True)

    with open(sys.argv[2]) as file:
        specs = file.read().splitlines()
    kind = "test" if mode == "test" else "benchmark"
    good = True
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        log(f"{kind}-count", len(specs))
        for i, spec in enumerate(specs):
            log(f"{kind}.{i}.spec", spec)
            args = parse(spec)
            args["seed"] += secret
            try:
                result = pool.apply(judge, (args, 1 if mode == "test" else 4))
            except Exception as err:
                result = f"{type(err).__name__}: {err}"
            if isinstance(result, str):
                good = False
                log(f"{kind}.{i}.status", "fail")
                log(f"{kind}.{i}.error", result)
            elif mode == "test":
                log(f"{kind}.{i}.status", "pass")
            else:
                mean = sum(result) / len(result)
                std = (sum((t - mean) ** 2 for t in result) / (len(result) - 1)) ** 0.5
                figures = {"runs": len(result), "mean": mean, "std": std, "err": std / len(result) ** 0.5,
                           "best": min(result), "worst": max(result)}
                for name, value in figures.items():
                    log(f"benchmark.{i}.{name}", value)
        log("check", "pass" if good else "fail")
    return 0 if good else 112


if __name__ == "__main__":
    sys.exit(main())
