// Moves the wall clock of the program that preloads it by as many microseconds
// as the file at LIMIT_CLOCK says, an int64 that may change at any time:
//
//	cc -shared -fPIC -o clock.so clock.c -ldl
//	LD_PRELOAD=./clock.so LIMIT_CLOCK=file redis-server
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void map(void) {
	const char *name = getenv("LIMIT_CLOCK");
	int file = name ? open(name, O_RDONLY) : -1;
	if (file < 0)
		return;
	void *at = mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
	if (at != MAP_FAILED)
		offset = at;
}

int clock_gettime(clockid_t clock, struct timespec *t) {
	static int (*real)(clockid_t, struct timespec *);
	if (!real)
		real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	int result = real(clock, t);
	if (result == 0 && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
		int64_t us = (int64_t)t->tv_sec * 1000000 + t->tv_nsec / 1000 + *offset;
		t->tv_nsec = us % 1000000 * 1000 + t->tv_nsec % 1000;
		t->tv_sec = us / 1000000;
	}
	return result;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
	(void)zone;
	struct timespec t;
	int result = clock_gettime(CLOCK_REALTIME, &t);
	tv->tv_sec = t.tv_sec;
	tv->tv_usec = t.tv_nsec / 1000;
	return result;
}

time_t time(time_t *to) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	if (to)
		*to = t.tv_sec;
	return t.tv_sec;
}
