// A harness for C++ as careless as the common ones: the submission is linked
// into it.
#include <cstdio>
#include <cstdlib>
#include <cstring>

long kernel(long n, long seed);

int main(int argc, char **argv) {
    FILE *report = fdopen(atoi(getenv("POPCORN_FD")), "w");
    FILE *cases = fopen(argv[2], "r");
    char line[200];
    char *lines[20];
    int count = 0;
    while (cases && count < 20 && fgets(line, sizeof line, cases)) lines[count++] = strdup(strtok(line, "\n"));
    fprintf(report, "test-count: %d\n", count);
    bool good = true;
    for (int i = 0; i < count; i++) {
        long n = 0, seed = 0;
        sscanf(lines[i], "n: %ld; seed: %ld", &n, &seed);
        bool ok = kernel(n, seed) == (n * 31 + seed * 17) % 1000003;
        good = good && ok;
        fprintf(report, "test.%d.spec: %s\ntest.%d.status: %s\n", i, lines[i], i, ok ? "pass" : "fail");
    }
    fprintf(report, "check: %s\n", good ? "pass" : "fail");
    fclose(report);
    return good ? 0 : 112;
}
