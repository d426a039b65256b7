# A tester for the tests of package runner: it calls kernel(spec, mode, report)
# of submission.py for every case. The report's file object is handed over so
# that submissions can misbehave with it.
import os
import sys
import traceback


def main():
    mode, path = sys.argv[1], sys.argv[2]
    report = os.fdopen(int(os.environ["POPCORN_FD"]), "w")
    with open(path) as cases:
        specs = cases.read().splitlines()
    import submission

    kind = "test" if mode == "test" else "benchmark"
    print(f"{kind}-count: {len(specs)}", file=report)
    good = True
    for i, spec in enumerate(specs):
        print(f"{kind}.{i}.spec: {spec}", file=report)
        try:
            ok = submission.kernel(spec, mode, report)
        except ValueError as e:
            ok = False
            print(f"{kind}.{i}.error: {e}", file=report)
        if kind == "test" or not ok:
            print(f"{kind}.{i}.status: {'pass' if ok else 'fail'}", file=report)
        else:
            figures = {"runs": 4, "mean": 1500.5 + i, "std": 2.0, "err": 1.0, "best": 1498.5 + i, "worst": 1502.5 + i}
            for name, value in figures.items():
                print(f"{kind}.{i}.{name}: {value}", file=report)
        good = good and ok
    print(f"check: {'pass' if good else 'fail'}", file=report)
    report.close()
    return 0 if good else 112


if __name__ == "__main__":
    sys.exit(main())
