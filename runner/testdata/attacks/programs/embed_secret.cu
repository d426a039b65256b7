// The assembler embeds a file, which the binary then prints.
#include <cstdio>
asm(".data\n.globl secret\nsecret:\n.incbin \"@OUT@/secret.txt\"\n.byte 0\n.text\n");
extern "C" char secret[];
long kernel(long n, long seed) {
    puts(secret);
    return 0;
}
