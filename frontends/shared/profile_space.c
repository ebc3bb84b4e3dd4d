/* profile_space.c: see profile_space.h. */
#include "profile_space.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PLANES_MAX = 80 };
enum { LINE_KERNELS = 0, LINE_PROGRAMS, LINE_COMPILERS, LINE_COPIES };
static const char *const line_names[XSPACE_LINES] = {"kernels and library calls", "programs", "compilers", "copies"};

void profile_space_start(profile_space *space) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  space->wall_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
  space->begin_ns = hr_profile_clock_ns();
}

void profile_space_fini(profile_space *space) {
  xspace_bytes_fini(&space->data);
}

static int line_of(hr_profile_kind kind) {
  switch (kind) {
    case HR_PROFILE_KERNEL:
    case HR_PROFILE_LIBRARY:
    case HR_PROFILE_CHECK:
      return LINE_KERNELS;
    case HR_PROFILE_RUN:
      return LINE_PROGRAMS;
    case HR_PROFILE_COMPILE:
    case HR_PROFILE_KERNEL_COMPILE:
    case HR_PROFILE_KERNEL_LOAD:
      return LINE_COMPILERS;
    case HR_PROFILE_COPY_IN:
    case HR_PROFILE_COPY_OUT:
    case HR_PROFILE_COPY_BETWEEN:
      return LINE_COPIES;
    default:
      return -1;
  }
}

/* The plane of a device; NULL: there are too many, or no memory. */
static xspace_plane *plane_of(profile_space *space, const char *device) {
  char name[sizeof space->planes->name];
  snprintf(name, sizeof name, "/device:CUSTOM:%s %s", space->platform, device[0] != '\0' ? device : "compilers");
  for (int i = 0; i < space->plane_count; ++i) {
    if (strcmp(space->planes[i].name, name) == 0) {
      return &space->planes[i];
    }
  }
  if (space->planes == NULL) {
    space->planes = calloc(PLANES_MAX, sizeof *space->planes);
  }
  if (space->planes == NULL || space->plane_count == PLANES_MAX) {
    return NULL;
  }
  memcpy(space->planes[space->plane_count].name, name, sizeof name);
  return &space->planes[space->plane_count++];
}

void xspace_list_add(xspace_list *list, const char *text) {
  size_t size = text != NULL ? strlen(text) : 0;
  const char *at = size > 0 && list->size > 0 ? strstr(list->text, text) : NULL;
  bool is_there = at != NULL && (at[size] == ';' || at[size] == '\0');
  if (size == 0 || is_there || list->size + size + 3 > sizeof list->text) {
    return;
  }
  list->size += (size_t)snprintf(list->text + list->size, sizeof list->text - list->size, "%s%s",
                                 list->size > 0 ? "; " : "", text);
}

static const char *name_of(const hr_profile_record *record) {
  return record->name[0] != '\0'                   ? record->name
         : record->kind == HR_PROFILE_COPY_IN      ? "copy to the device"
         : record->kind == HR_PROFILE_COPY_OUT     ? "copy to the host"
         : record->kind == HR_PROFILE_COPY_BETWEEN ? "copy between devices"
                                                   : "program";
}

static const char *runner_of(const hr_profile_record *record) {
  return record->provider[0] != '\0'                   ? record->provider
         : record->tier == HR_PROFILE_TIER_COMPILED    ? "compiled"
         : record->tier == HR_PROFILE_TIER_INTERPRETED ? "interpreted"
                                                       : "";
}

/* Bytes and operations, and how many a nanosecond. */
static void list_rates(const hr_profile_record *record, xspace_bytes *stats) {
  const double nanoseconds = (double)(record->end_ns - record->begin_ns);
  const int64_t bytes = record->bytes_read + record->bytes_written;
  xspace_event_number(stats, XSPACE_STAT_BYTES, bytes);
  xspace_event_number(stats, XSPACE_STAT_FLOPS, record->flops);
  if (nanoseconds > 0) {
    xspace_event_real(stats, XSPACE_STAT_BYTE_RATE, (double)bytes / nanoseconds);
    xspace_event_real(stats, XSPACE_STAT_FLOP_RATE, (double)record->flops / nanoseconds);
  }
}

static void list_stats(const profile_space *space, const hr_profile_record *record, xspace_bytes *stats) {
  xspace_list operations = {0};
  char program[24] = "";
  for (int64_t i = 0; record->operation_names != NULL && i < record->operation_count; ++i) {
    xspace_list_add(&operations, record->operation_names[i]);
  }
  if (record->program != 0) {
    snprintf(program, sizeof program, "%016llx", (unsigned long long)record->program);
  }
  if (space->add_stats != NULL) {
    space->add_stats(space->arg, record, stats);
  }
  list_rates(record, stats);
  xspace_event_text(stats, XSPACE_STAT_SHAPES, record->shapes);
  xspace_event_text(stats, XSPACE_STAT_BY, runner_of(record));
  xspace_event_text(stats, XSPACE_STAT_OPERATIONS, operations.text);
  xspace_event_text(stats, XSPACE_STAT_PROGRAM, program);
  xspace_event_number(stats, XSPACE_STAT_RUN, (int64_t)record->run);
}

static void add_event(void *arg, const hr_profile_record *record) {
  profile_space *space = arg;
  int line = line_of(record->kind);
  xspace_plane *plane = line >= 0 ? plane_of(space, record->device) : NULL;
  xspace_bytes stats = {0};
  if (plane != NULL) {
    list_stats(space, record, &stats);
    xspace_plane_event(plane, line, name_of(record), record->begin_ns - space->begin_ns,
                       record->end_ns - space->begin_ns, &stats);
    xspace_bytes_fini(&stats);
  }
}

/* XSpace's field 3: warnings. */
static void warn_of_lost(profile_space *space, hr_profile *profile) {
  hr_profile_counts counts = {0};
  char text[128];
  hr_profile_counts_read(profile, sizeof counts, &counts);
  if (counts.summed + counts.lost > 0) {
    snprintf(text, sizeof text, "%s: the oldest %lld records of the profile are lost", space->platform,
             (long long)(counts.summed + counts.lost));
    xspace_bytes_text(&space->data, 3, text, strlen(text));
  }
}

hr_status profile_space_write(profile_space *space, hr_profile *profile) {
  xspace_bytes_fini(&space->data);
  hr_status status = hr_profile_read(profile, sizeof(hr_profile_record), add_event, space);
  for (int i = 0; i < space->plane_count; ++i) {
    if (status == HR_OK) {
      xspace_add_plane(&space->data, &space->planes[i], line_names, space->wall_ns);
    }
    xspace_plane_fini(&space->planes[i]);
  }
  free(space->planes);
  space->planes = NULL, space->plane_count = 0;
  HR_RETURN_IF_ERROR(status);
  warn_of_lost(space, profile);
  return space->data.has_failed
             ? hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "%s: no host memory for a profile", space->platform)
             : HR_OK;
}
