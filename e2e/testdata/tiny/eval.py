"""The least harness there can be: it trusts the submission, as some do."""

import os
import sys
import time


def main() -> int:
    mode, cases = sys.argv[1], open(sys.argv[2]).read().splitlines()
    with os.fdopen(int(os.environ["POPCORN_FD"]), "w") as report:
        from submission import custom_kernel

        kind = "test" if mode == "test" else "benchmark"
        print(f"{kind}-count: {len(cases)}", file=report)
        good = True
        for i, case in enumerate(cases):
            n = int(case.split(":")[1])
            print(f"{kind}.{i}.spec: {case}", file=report)
            start = time.perf_counter_ns()
            right = custom_kernel(n) == n
            spent = time.perf_counter_ns() - start
            good = good and right
            if mode == "test":
                print(f"test.{i}.status: {'pass' if right else 'fail'}", file=report)
                continue
            for key, value in (("runs", 1), ("mean", spent), ("std", 0), ("err", 0), ("best", spent), ("worst", spent)):
                print(f"benchmark.{i}.{key}: {value}", file=report)
        print(f"check: {'pass' if good else 'fail'}", file=report)
    return 0 if good else 112


if __name__ == "__main__":
    sys.exit(main())
