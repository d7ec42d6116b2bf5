/* For LD_PRELOAD: the clock of the day jumps every two seconds by up to 30 days; monotonic clocks go on as they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <sys/time.h>
#include <time.h>

static int real(clockid_t clock, struct timespec *at) {
    static int (*next)(clockid_t, struct timespec *);
    if (!next) next = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    return next(clock, at);
}

static time_t jump(void) {
    struct timespec now;
    real(CLOCK_MONOTONIC, &now);
    uint64_t window = (uint64_t)now.tv_sec / 2 * 0x9E3779B97F4A7C15u;
    return (time_t)((window >> 20) % (60u * 86400u)) - 30 * 86400;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int code = real(clock, at);
    if (!code && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += jump();
    return code;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    (void)zone;
    struct timespec now;
    int code = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return code;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
