/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  A library for LD_PRELOAD that holds up or fails the writes of the engine's log.

  FIRN_LOG_GATE names a file of two 32-bit numbers: what a write meets (0: it passes, 1: it waits
  until the number changes, 2: it fails with EIO), and the number of writes that wait.
*/

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile unsigned* control;

__attribute__((constructor)) static void start(void) {
  const char* name = getenv("FIRN_LOG_GATE");
  const int file = name ? open(name, O_RDWR) : -1;
  if (file < 0) return;
  void* map = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (map != MAP_FAILED) control = map;
}

static int is_log(int file) {
  char link[32], name[4096];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, name, sizeof(name) - 1);
  if (length < 0) return 0;
  name[length] = 0;
  return strstr(name, "#firn") && strstr(name, ".wal");
}

ssize_t pwrite64(int file, const void* bytes, size_t size, off64_t offset) {
  if (control && control[0] && is_log(file)) {
    __sync_fetch_and_add(&control[1], 1);
    while (control[0] == 1) usleep(1000);
    __sync_fetch_and_sub(&control[1], 1);
    if (control[0] == 2) {
      errno = EIO;
      return -1;
    }
  }
  return ((ssize_t(*)(int, const void*, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64"))(file, bytes, size, offset);
}
