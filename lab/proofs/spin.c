// Makes a build of the plugin that is slower by a known time. Linked with
// -Wl,--wrap=firn_begin_statement, each statement on a FIRN table first spins for FIRN_LAB_SPIN_NS
// nanoseconds. `scripts/lab.sh spin` makes that build; no released build contains this file.

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

int __real_firn_begin_statement(void *session, uint64_t statement_id, int isolation,
                                uint64_t lock_timeout_us, bool autocommit);

static int64_t spin_ns;

__attribute__((constructor)) static void read_spin(void) {
  const char *text = getenv("FIRN_LAB_SPIN_NS");
  spin_ns = text ? atoll(text) : 0;
}

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int __wrap_firn_begin_statement(void *session, uint64_t statement_id, int isolation,
                                uint64_t lock_timeout_us, bool autocommit) {
  if (spin_ns > 0) {
    const int64_t until = now_ns() + spin_ns;
    while (now_ns() < until) {
    }
  }
  return __real_firn_begin_statement(session, statement_id, isolation, lock_timeout_us, autocommit);
}
