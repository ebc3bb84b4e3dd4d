/* disk_cache.h: compiled kernels, and what was measured, kept between runs of programs.
 *
 *   IDENTITY-HASH.so     a library, with a footer: its length and checksum
 *   IDENTITY-HASH.ref    a kernel: its whole text, the library that has it, a checksum
 *   IDENTITY-HASH.image  a kernel of a device with a compiler of its own: its whole text, its code, a checksum
 *   IDENTITY-HASH.choice a key of tuning_cache.h, its value, a checksum
 *
 * HASH is of what the file was made from, IDENTITY of compiler, version, flags, CPU and the texts of src/core. The
 * folder is the user's own (0700): one that belongs to somebody else, or that others may write to, is refused. Files
 * come by atomic renaming, so processes share a folder; a file that is cut short, damaged or foreign counts as absent
 * and is made again. When the folder holds more than HEADRACE_CACHE_BYTES, the files that were not used longest go.
 * Threads: any, each with a cache of its own or none that opens or ends it meanwhile.
 */
#ifndef HEADRACE_ENGINE_DISK_CACHE_H_
#define HEADRACE_ENGINE_DISK_CACHE_H_

#include <stdint.h>

#include "base/text.h"
#include "headrace/status.h"

typedef struct hr_disk_cache {
  char *folder;
  uint64_t identity;
} hr_disk_cache;

/* Opens, and if need be makes, the folder that the environment names. FAILED_PRECONDITION when there shall be none, or
 * when the one that is there can't be trusted. */
HR_MUST_USE hr_status hr__disk_cache_open(uint64_t identity, hr_disk_cache *out_cache);
void hr__disk_cache_fini(hr_disk_cache *cache);

/* The path of a sound library that has the kernel of this text; false when there is none. */
bool hr__disk_cache_find(const hr_disk_cache *cache, const char *text, size_t length, hr_text *out_path);
/* Keeps the library at `path`, made from `text`; gives where it is now. */
HR_MUST_USE hr_status hr__disk_cache_add_library(const hr_disk_cache *cache, const char *text, size_t length,
                                                 const char *path, hr_text *out_path);
/* Says that the library at `path` has the kernel of this text. */
HR_MUST_USE hr_status hr__disk_cache_add_kernel(const hr_disk_cache *cache, const char *text, size_t length,
                                                const char *path);
/* Appends the code of a kernel of a device; false when there is none for this text. */
bool hr__disk_cache_find_image(const hr_disk_cache *cache, const char *text, size_t length, hr_text *out_image);
HR_MUST_USE hr_status hr__disk_cache_add_image(const hr_disk_cache *cache, const char *text, size_t length,
                                               const char *image, size_t image_length);
/* The same for a choice, whose IDENTITY is of the form of keys and values. */
bool hr__disk_cache_find_tuning(const hr_disk_cache *cache, const char *key, size_t length, hr_text *out_value);
HR_MUST_USE hr_status hr__disk_cache_add_tuning(const hr_disk_cache *cache, const char *key, size_t length,
                                                const char *value, size_t value_length);
/* Removes old files until no more than the limit is left. */
void hr__disk_cache_trim(const hr_disk_cache *cache);

#endif
