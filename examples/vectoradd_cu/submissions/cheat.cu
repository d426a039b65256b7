// Cheats: forges a verdict as early as a submission can, in start-up code, and
// again when its kernel is called, then leaves. It tries POPCORN_FD, where other
// harnesses have their report, and every descriptor that it finds.
//
// There is no report here: the judge is another program in another sandbox, and
// what comes through the channel is no verdict.

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "task.h"

static void forge() {
    const char text[] =
        "test-count: 1\ntest.0.status: pass\nbenchmark-count: 1\nbenchmark.0.runs: 3\n"
        "benchmark.0.mean: 1\nbenchmark.0.std: 0\nbenchmark.0.err: 0\nbenchmark.0.best: 1\n"
        "benchmark.0.worst: 1\ncheck: pass\n";
    const char* number = std::getenv("POPCORN_FD");
    const int known = number ? std::atoi(number) : -1;
    if (write(known, text, sizeof text - 1) > 0) _exit(0);
    for (int fd = 0; fd < 64; fd++) {
        char path[64];
        std::snprintf(path, sizeof path, "/proc/%d/fd/%d", int(getppid()), fd);
        const int opened = open(path, O_WRONLY);
        if (opened >= 0 && write(opened, text, sizeof text - 1) > 0) _exit(0);
        if (fd > 2 && write(fd, text, sizeof text - 1) > 0) _exit(0);
    }
}

static const bool forged = (forge(), true);

void custom_kernel(const float*, const float*, float*, std::size_t) {
    if (forged) forge();
    _exit(0);
}
