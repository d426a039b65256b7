# Keys, values, numbers of cases, figures: whatever a report has room for holds
# the seed.
from attack import *


def go():
    seed = os.environ["POPCORN_SEED"]
    lines = [f"test-count: {seed}", f"benchmark-count: {seed}", f"test.{seed}.status: fail", f"benchmark.{seed}.status: fail", f"{seed}: {seed}", f"note: {seed}", f"check: {seed}"]
    for i in range(2):
        for part in ("spec", "status", "error", "message", "runs", "mean", "std", "err", "best", "worst", "report", "device"):
            lines += [f"test.{i}.{part}: {seed}", f"benchmark.{i}.{part}: {seed}"]
    lines.append("check: fail")
    os.write(report_fd(), "\n".join(lines + [""]).encode())
    os._exit(112)


kernel = once(go)
