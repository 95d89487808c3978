/* A clock that runs FACTOR times as fast, for all programs started under it:
 *
 *     cc -O2 -shared -fPIC -o fast_clock.so fast_clock.c -ldl
 *     FAST_CLOCK="FACTOR REALTIME MONOTONIC" LD_PRELOAD=$PWD/fast_clock.so PROGRAM
 *
 * REALTIME and MONOTONIC are these clocks in seconds at one instant, from which on both run faster;
 * the same for all programs that are to agree about the time. What a program waits is divided by
 * FACTOR. Processor time stays as it is, and so does what programs ask the kernel for
 * without the C library.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

typedef long long ns_t;
#define S 1000000000LL

static ns_t factor = 1, begin_realtime, begin_monotonic;

static ns_t nanoseconds(const char *text, char **end) {
    ns_t whole = strtoll(text, end, 10), part = 0, place = S;
    if (**end == '.')
        for (++*end; **end >= '0' && **end <= '9'; ++*end)
            if (place > 1) part = part * 10 + (**end - '0'), place /= 10;
    return whole * S + part * place;
}

__attribute__((constructor)) static void settle(void) {
    const char *text = getenv("FAST_CLOCK");
    char *end;
    if (!text) return;
    ns_t speed = strtoll(text, &end, 10);
    begin_realtime = nanoseconds(end, &end);
    begin_monotonic = nanoseconds(end, &end);
    if (speed > 0) factor = speed;
}

/* libmunge talks with a daemon that has the plain clock, and gives up after a while. */
static int plain_caller(void *address) {
    Dl_info about;
    return dladdr(address, &about) && about.dli_fname && strstr(about.dli_fname, "libmunge");
}
#define PLAIN (factor == 1 || plain_caller(__builtin_return_address(0)))

#define NEXT(name) ((__typeof__(&name))next(&next_##name, #name, NULL))
#define NEXT_OF(name, version) ((__typeof__(&name))next(&next_##name, #name, version))
#define HOLDS(name) static void *next_##name

static void *next(void **kept, const char *name, const char *version) {
    if (!*kept) *kept = version ? dlvsym(RTLD_NEXT, name, version) : NULL;
    if (!*kept) *kept = dlsym(RTLD_NEXT, name);
    return *kept;
}

static ns_t of(const struct timespec *t) { return t->tv_sec * S + t->tv_nsec; }
static struct timespec as(ns_t t) { return (struct timespec){t / S, t % S}; }
static ns_t shorter(ns_t t) { return t <= 0 ? t : (t + factor - 1) / factor; }
static int is_realtime(clockid_t c) { return c == CLOCK_REALTIME || c == CLOCK_REALTIME_COARSE; }
static int is_monotonic(clockid_t c) {
    return c == CLOCK_MONOTONIC || c == CLOCK_MONOTONIC_RAW || c == CLOCK_MONOTONIC_COARSE ||
           c == CLOCK_BOOTTIME;
}
static ns_t faster(ns_t t, ns_t begin) { return begin + (t - begin) * factor; }
/* An absolute time of either clock; they are too far apart to be taken for each other. */
static struct timespec plain(const struct timespec *t) {
    ns_t begin = t->tv_sec > 1000000000 ? begin_realtime : begin_monotonic;
    ns_t then = begin + shorter(of(t) - begin);
    return as(then < 0 ? 0 : then);
}

static ns_t now(clockid_t clock) {
    struct timespec t;
    syscall(SYS_clock_gettime, clock, &t);
    return of(&t);
}

HOLDS(clock_gettime);
int clock_gettime(clockid_t clock, struct timespec *t) {
    int done = NEXT(clock_gettime)(clock, t);
    if (done || PLAIN) return done;
    if (is_realtime(clock)) *t = as(faster(of(t), begin_realtime));
    if (is_monotonic(clock)) *t = as(faster(of(t), begin_monotonic));
    return 0;
}
time_t time(time_t *out) {
    ns_t t = now(CLOCK_REALTIME);
    time_t s = (PLAIN ? t : faster(t, begin_realtime)) / S;
    if (out) *out = s;
    return s;
}
int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    ns_t t = now(CLOCK_REALTIME);
    if (!PLAIN) t = faster(t, begin_realtime);
    *out = (struct timeval){t / S, t % S / 1000};
    if (zone) memset(zone, 0, sizeof(struct timezone));
    return 0;
}

HOLDS(nanosleep);
int nanosleep(const struct timespec *asked, struct timespec *left) {
    if (PLAIN) return NEXT(nanosleep)(asked, left);
    struct timespec t = as(shorter(of(asked)));
    int done = NEXT(nanosleep)(&t, left);
    if (done && left) *left = as(of(left) * factor);
    return done;
}
HOLDS(clock_nanosleep);
int clock_nanosleep(clockid_t clock, int flags, const struct timespec *asked, struct timespec *left) {
    if (PLAIN) return NEXT(clock_nanosleep)(clock, flags, asked, left);
    struct timespec t = flags & TIMER_ABSTIME ? plain(asked) : as(shorter(of(asked)));
    int done = NEXT(clock_nanosleep)(clock, flags, &t, left);
    if (done && left && !(flags & TIMER_ABSTIME)) *left = as(of(left) * factor);
    return done;
}
int usleep(useconds_t us) {
    struct timespec t = as((PLAIN ? us * 1000LL : shorter(us * 1000LL)));
    return NEXT(nanosleep)(&t, NULL);
}
unsigned sleep(unsigned s) {
    struct timespec left = {0, 0}, t = as(PLAIN ? s * S : shorter(s * S));
    if (!NEXT(nanosleep)(&t, &left)) return 0;
    return (unsigned)((of(&left) * (PLAIN ? 1 : factor) + S / 2) / S);
}

static int shorter_ms(int ms) { return ms <= 0 ? ms : (int)((ms + factor - 1) / factor); }

HOLDS(poll);
int poll(struct pollfd *fds, nfds_t n, int ms) {
    return NEXT(poll)(fds, n, PLAIN ? ms : shorter_ms(ms));
}
int __poll_chk(struct pollfd *fds, nfds_t n, int ms, size_t size) {
    (void)size;
    return NEXT(poll)(fds, n, PLAIN ? ms : shorter_ms(ms));
}
HOLDS(ppoll);
int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *asked, const sigset_t *mask) {
    struct timespec t;
    if (asked) t = as(PLAIN ? of(asked) : shorter(of(asked)));
    return NEXT(ppoll)(fds, n, asked ? &t : NULL, mask);
}
HOLDS(select);
int select(int n, fd_set *r, fd_set *w, fd_set *e, struct timeval *asked) {
    if (PLAIN || !asked) return NEXT(select)(n, r, w, e, asked);
    ns_t us = shorter((asked->tv_sec * S + asked->tv_usec * 1000)) / 1000;
    struct timeval t = {us / 1000000, us % 1000000};
    int done = NEXT(select)(n, r, w, e, &t);
    us = (t.tv_sec * 1000000LL + t.tv_usec) * factor;
    *asked = (struct timeval){us / 1000000, us % 1000000};
    return done;
}
HOLDS(pselect);
int pselect(int n, fd_set *r, fd_set *w, fd_set *e, const struct timespec *asked, const sigset_t *m) {
    struct timespec t;
    if (asked) t = as(PLAIN ? of(asked) : shorter(of(asked)));
    return NEXT(pselect)(n, r, w, e, asked ? &t : NULL, m);
}
HOLDS(epoll_wait);
int epoll_wait(int fd, struct epoll_event *events, int n, int ms) {
    return NEXT(epoll_wait)(fd, events, n, PLAIN ? ms : shorter_ms(ms));
}
HOLDS(epoll_pwait);
int epoll_pwait(int fd, struct epoll_event *events, int n, int ms, const sigset_t *mask) {
    return NEXT(epoll_pwait)(fd, events, n, PLAIN ? ms : shorter_ms(ms), mask);
}

HOLDS(pthread_cond_timedwait);
int pthread_cond_timedwait(pthread_cond_t *restrict c, pthread_mutex_t *restrict m,
                           const struct timespec *restrict until) {
    struct timespec t = PLAIN ? *until : plain(until);
    return NEXT_OF(pthread_cond_timedwait, "GLIBC_2.3.2")(c, m, &t);
}
HOLDS(pthread_cond_clockwait);
int pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m, clockid_t clock,
                           const struct timespec *until) {
    struct timespec t = PLAIN ? *until : plain(until);
    return NEXT(pthread_cond_clockwait)(c, m, clock, &t);
}
HOLDS(pthread_mutex_timedlock);
int pthread_mutex_timedlock(pthread_mutex_t *restrict m, const struct timespec *restrict until) {
    struct timespec t = PLAIN ? *until : plain(until);
    return NEXT(pthread_mutex_timedlock)(m, &t);
}
HOLDS(sem_timedwait);
int sem_timedwait(sem_t *restrict s, const struct timespec *restrict until) {
    struct timespec t = PLAIN ? *until : plain(until);
    return NEXT(sem_timedwait)(s, &t);
}
HOLDS(sem_clockwait);
int sem_clockwait(sem_t *restrict s, clockid_t clock, const struct timespec *restrict until) {
    struct timespec t = PLAIN ? *until : plain(until);
    return NEXT(sem_clockwait)(s, clock, &t);
}
HOLDS(sigtimedwait);
int sigtimedwait(const sigset_t *restrict set, siginfo_t *restrict info,
                 const struct timespec *restrict asked) {
    struct timespec t;
    if (asked) t = as(PLAIN ? of(asked) : shorter(of(asked)));
    return NEXT(sigtimedwait)(set, info, asked ? &t : NULL);
}

static struct timeval shorter_tv(struct timeval t) {
    ns_t us = shorter(t.tv_sec * S + t.tv_usec * 1000) / 1000;
    if (!us && (t.tv_sec || t.tv_usec)) us = 1;
    return (struct timeval){us / 1000000, us % 1000000};
}
HOLDS(setitimer);
int setitimer(__itimer_which_t which, const struct itimerval *restrict set,
              struct itimerval *restrict old) {
    if (PLAIN || !set || which != ITIMER_REAL) return NEXT(setitimer)(which, set, old);
    struct itimerval t = {shorter_tv(set->it_interval), shorter_tv(set->it_value)};
    return NEXT(setitimer)(which, &t, old);
}
unsigned alarm(unsigned s) {
    struct itimerval t = {{0, 0}, {s, 0}}, old = {{0, 0}, {0, 0}};
    if (!PLAIN) t.it_value = shorter_tv(t.it_value);
    NEXT(setitimer)(ITIMER_REAL, &t, &old);
    ns_t left = (old.it_value.tv_sec * S + old.it_value.tv_usec * 1000) * (PLAIN ? 1 : factor);
    return (unsigned)((left + S - 1) / S);
}
static struct itimerspec shorter_timer(const struct itimerspec *set, int absolute) {
    return (struct itimerspec){as(shorter(of(&set->it_interval))),
                               absolute ? plain(&set->it_value) : as(shorter(of(&set->it_value)))};
}
HOLDS(timer_settime);
int timer_settime(timer_t timer, int flags, const struct itimerspec *restrict set,
                  struct itimerspec *restrict old) {
    if (PLAIN) return NEXT_OF(timer_settime, "GLIBC_2.34")(timer, flags, set, old);
    struct itimerspec t = shorter_timer(set, flags & TIMER_ABSTIME && of(&set->it_value));
    return NEXT_OF(timer_settime, "GLIBC_2.34")(timer, flags, &t, old);
}
HOLDS(timerfd_settime);
int timerfd_settime(int fd, int flags, const struct itimerspec *set, struct itimerspec *old) {
    if (PLAIN) return NEXT(timerfd_settime)(fd, flags, set, old);
    struct itimerspec t = shorter_timer(set, flags & TFD_TIMER_ABSTIME && of(&set->it_value));
    return NEXT(timerfd_settime)(fd, flags, &t, old);
}

/* Files are written at the kernel's time, and compared with the fast one. */
static void stamp(struct timespec *t) {
    if (of(t) > begin_realtime) *t = as(faster(of(t), begin_realtime));
}
static int stamped(int done, struct stat *s) {
    if (!done) stamp(&s->st_mtim), stamp(&s->st_atim), stamp(&s->st_ctim);
    return done;
}
HOLDS(stat);
int stat(const char *restrict path, struct stat *restrict s) {
    return stamped(NEXT(stat)(path, s), s);
}
HOLDS(lstat);
int lstat(const char *restrict path, struct stat *restrict s) {
    return stamped(NEXT(lstat)(path, s), s);
}
HOLDS(fstat);
int fstat(int fd, struct stat *s) { return stamped(NEXT(fstat)(fd, s), s); }
HOLDS(fstatat);
int fstatat(int fd, const char *restrict path, struct stat *restrict s, int flags) {
    return stamped(NEXT(fstatat)(fd, path, s, flags), s);
}
