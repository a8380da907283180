/* SPDX-License-Identifier: Apache-2.0
 *
 * LD_PRELOAD shim: every fsync and fdatasync takes SLOW_FSYNC_US microseconds longer, as on the
 * disk of a laptop. The real one is called after that. See bench/slow_disk.py.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static void be_slow(void) {
    const char *given = getenv("SLOW_FSYNC_US");
    long left = given ? atol(given) : 0;
    struct timespec pause = {left / 1000000, left % 1000000 * 1000};
    if (left > 0)
        while (nanosleep(&pause, &pause)) {
        }
}

int fsync(int fd) {
    static int (*real)(int);
    if (!real)
        real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    be_slow();
    return real(fd);
}

int fdatasync(int fd) {
    static int (*real)(int);
    if (!real)
        real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    be_slow();
    return real(fd);
}
