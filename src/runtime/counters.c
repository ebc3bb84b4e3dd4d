#include "runtime/counters.h"

#define NAME(name, meaning) #name,
#define MEANING(name, meaning) meaning,
enum { STREAM_COUNT = sizeof(hr_stats) / sizeof(int64_t), MEMORY_COUNT = sizeof(hr_memory_stats) / sizeof(int64_t) };

static const char *const stream_names[STREAM_COUNT] = {HR_STREAM_STATS(NAME)};
static const char *const stream_meanings[STREAM_COUNT] = {HR_STREAM_STATS(MEANING)};
static const char *const memory_names[MEMORY_COUNT] = {HR_MEMORY_STATS(NAME)};
static const char *const memory_meanings[MEMORY_COUNT] = {HR_MEMORY_STATS(MEANING)};

const char *hr_stream_stat_name(int index) {
  return index >= 0 && index < STREAM_COUNT ? stream_names[index] : NULL;
}

const char *hr_stream_stat_meaning(int index) {
  return index >= 0 && index < STREAM_COUNT ? stream_meanings[index] : NULL;
}

const char *hr_memory_stat_name(int index) {
  return index >= 0 && index < MEMORY_COUNT ? memory_names[index] : NULL;
}

const char *hr_memory_stat_meaning(int index) {
  return index >= 0 && index < MEMORY_COUNT ? memory_meanings[index] : NULL;
}
