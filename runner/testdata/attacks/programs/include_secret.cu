// The compiler's message about a file shows its first line.
#include "@OUT@/secret.txt"
#include "/proc/self/environ"
#include "../../../../out/secret.txt"
long kernel(long n, long seed) { return 0; }
