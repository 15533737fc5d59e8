/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  A library for LD_PRELOAD that kills the server before its n-th step of DDL: a call that changes or
  syncs a definition file or the server's log of DDL. The engine's own files are not counted: each
  call of the engine is durable when it returns, so a kill between two steps of the server meets
  every state that the engine can be in between its calls.

  FIRN_STEP_FILE names a file of three 32-bit numbers: whether steps count, the number of steps so
  far, and the step to die before (0: none).
*/

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile unsigned* control;

__attribute__((constructor)) static void start(void) {
  const char* name = getenv("FIRN_STEP_FILE");
  const int file = name ? open(name, O_RDWR) : -1;
  if (file < 0) return;
  void* map = mmap(NULL, 12, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (map != MAP_FAILED) control = map;
}

static int counts(const char* name) {
  static const char* const kinds[] = {".frm", ".par", ".TRG", ".TRN", "ddl_recovery"};
  for (unsigned i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
    if (strstr(name, kinds[i])) return 1;
  return 0;
}

static void step(const char* name) {
  if (!control || !control[0] || !counts(name)) return;
  const unsigned number = __sync_add_and_fetch(&control[1], 1);
  if (number == control[2]) {
    kill(getpid(), SIGKILL);
    pause();
  }
}

static void step_of(int file) {
  char link[32], name[4096];
  if (!control || !control[0]) return;
  snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, name, sizeof(name) - 1);
  if (length < 0) return;
  name[length] = 0;
  step(name);
}

#define NEXT(type, name, ...) ((type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))

int rename(const char* from, const char* to) {
  step(from);
  return NEXT(int, rename, const char*, const char*)(from, to);
}

int unlink(const char* name) {
  step(name);
  return NEXT(int, unlink, const char*)(name);
}

int fsync(int file) {
  step_of(file);
  return NEXT(int, fsync, int)(file);
}

int fdatasync(int file) {
  step_of(file);
  return NEXT(int, fdatasync, int)(file);
}

ssize_t pwrite64(int file, const void* bytes, size_t size, off64_t at) {
  step_of(file);
  return NEXT(ssize_t, pwrite64, int, const void*, size_t, off64_t)(file, bytes, size, at);
}

ssize_t write(int file, const void* bytes, size_t size) {
  step_of(file);
  return NEXT(ssize_t, write, int, const void*, size_t)(file, bytes, size);
}
