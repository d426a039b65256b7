"""The harness of kbnode verify: does a submission return what it is given?"""

import os
import sys


def main() -> int:
    cases = open(sys.argv[2]).read().splitlines()
    with os.fdopen(int(os.environ["POPCORN_FD"]), "w") as report:
        from submission import custom_kernel

        print(f"test-count: {len(cases)}", file=report)
        right = True
        for i, case in enumerate(cases):
            n = int(case.split(":")[1])
            passed = custom_kernel(n) == n
            right = right and passed
            print(f"test.{i}.spec: {case}", file=report)
            print(f"test.{i}.status: {'pass' if passed else 'fail'}", file=report)
        print(f"check: {'pass' if right else 'fail'}", file=report)
    return 0 if right else 112


if __name__ == "__main__":
    sys.exit(main())
