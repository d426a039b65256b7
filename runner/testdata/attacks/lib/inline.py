# The most careless harness there is: the submission runs in its own process,
# beside the open report and the seed.
import os
import sys

from worker import answer, parse


def main():
    mode = sys.argv[1]
    report = os.fdopen(int(os.environ["POPCORN_FD"]), "w", buffering=1, errors="surrogateescape")
    secret = int(os.getenv("POPCORN_SEED", "0"))
    with open(sys.argv[2]) as file:
        specs = file.read().splitlines()
    import submission

    kind = "test" if mode == "test" else "benchmark"
    print(f"{kind}-count: {len(specs)}", file=report)
    good = True
    for i, spec in enumerate(specs):
        print(f"{kind}.{i}.spec: {spec}", file=report)
        args = parse(spec)
        try:
            got = submission.kernel(args["n"], args["seed"] + secret)
            ok, text = got == answer(args["n"], args["seed"] + secret), f"got {got}"
        except ValueError as err:
            ok, text = False, str(err)
        good = good and ok
        if kind == "test" or not ok:
            print(f"{kind}.{i}.status: {'pass' if ok else 'fail'}", file=report)
            if not ok:
                print(f"{kind}.{i}.error: {text}", file=report)
        else:
            for name, value in {"runs": 4, "mean": 1500.0, "std": 2.0, "err": 1.0, "best": 1498.0, "worst": 1502.0}.items():
                print(f"benchmark.{i}.{name}: {value}", file=report)
    print(f"check: {'pass' if good else 'fail'}", file=report)
    report.close()
    return 0 if good else 112


if __name__ == "__main__":
    sys.exit(main())
