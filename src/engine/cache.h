/* cache.h: the compiled programs of a stream, the most recently used ones.
 *
 * Streams repeat themselves: the successor that a program had the last time is compared first. If it matches, the key
 * is not hashed.
 *
 * Two bounds apply: a number of entries (HEADRACE_CACHE_ENTRIES) and the host memory of the entries. A third one
 * applies to entries that were never found again, as those of shapes that come once: otherwise such shapes would fill
 * the memory and evict what repeats. A key whose entry was evicted by it counts as repeated when it comes again, so
 * programs of a cycle stay however long it is (the queues of 2Q: Johnson and Shasha, VLDB 1994).
 *
 * A fourth bound applies to a host's copies of general plans: see general_instance.h. Threads: the stream's lock.
 */
#ifndef HEADRACE_ENGINE_CACHE_H_
#define HEADRACE_ENGINE_CACHE_H_

#include "base/table.h"
#include "engine/general_instance.h"

enum { HR_CACHE_EVICTED = 1024, HR_CACHE_COPIES_MIN = 64 };

typedef struct hr_cache_limits {
  size_t count, bytes, once_bytes;
  size_t copy_bytes; /* of copies of general plans, if they are more than HR_CACHE_COPIES_MIN */
} hr_cache_limits;

typedef struct hr_cache {
  hr_table table;               /* by hash; entries with equal hashes are chained */
  hr_instance *newest, *oldest; /* by last use; the newest is the one that was found or added last */
  hr_cache_limits limits;
  size_t count, bytes;
  size_t once_bytes;         /* of entries that were not found again */
  size_t copies, copy_bytes; /* of general plans, on a host */
  bool is_full_of_copies;    /* a new one evicts another */
  hr_instance *oldest_copy;  /* by last use */
  uint32_t uses;             /* programs so far: the clock of last uses. It may wrap */
  uint64_t *evicted;         /* hashes of keys, by hash; NULL: none yet */
  atomic_int_least64_t *total;
  uint32_t trims;               /* so far */
  hr_general_instances general; /* for keys that are met once or twice */
} hr_cache;

/* `total`: a count of bytes that others add to as well. */
void hr__cache_init(hr_cache *cache, const hr_cache_limits *limits, atomic_int_least64_t *total);
void hr__cache_fini(hr_cache *cache);
/* Releases all instances. */
void hr__cache_clear(hr_cache *cache);
/* Releases all instances that were not used since the last trim. */
void hr__cache_trim(hr_cache *cache);
/* The instance of a key, borrowed, or NULL. */
hr_instance *hr__cache_find(hr_cache *cache, hr_key *key);
/* The expected next instance if it has this key, borrowed, or NULL. */
hr_instance *hr__cache_find_expected(const hr_cache *cache, const hr_key *key);
/* Notes a use of the expected instance, as hr__cache_find does. */
void hr__cache_use(hr_cache *cache, hr_instance *instance);
/* The instance of a key that is not in the cache if it shares one with other keys of a known structure, borrowed until
 * the next call; NULL: it needs one of its own. */
hr_instance *hr__cache_find_general(hr_cache *cache, hr_key *key, hr_device *device);
/* Takes over the caller's reference, and evicts the least recently used entries beyond the bounds, but never the new
 * one. On failure the reference stays the caller's. */
HR_MUST_USE hr_status hr__cache_add(hr_cache *cache, hr_instance *instance);

#endif
