// The worker's own end of the channel, as a submission can find it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include "task.h"

// Where the shared memory of that name lies, the last one of several.
static unsigned char *shared(const char *name) {
    unsigned char *found = nullptr;
    char line[500];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, name)) found = (unsigned char *)strtoull(line, nullptr, 16);
    if (maps) fclose(maps);
    return found;
}

// The descriptor of the channel.
static int channel() {
    for (int fd = 3; fd < 64; fd++) {
        int type = 0;
        socklen_t size = sizeof type;
        if (!getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) && type == SOCK_SEQPACKET) return fd;
    }
    return -1;
}

static volatile uint32_t *word(int index) { return (volatile uint32_t *)shared("memfd:page") + index; }
