/* disk_cache.h: compiled kernels and tuning results, kept on disk between processes.
 *
 *   CACHEDIR.TAG         for programs that make backups
 *   SIZE                 about how many bytes the files below have, so that no process has to add them up
 *   IDENTITY-HASH.so     a library, with a footer: its length and checksum
 *   IDENTITY-HASH.ref    a kernel: its whole text, the library that has it, a checksum
 *   IDENTITY-HASH.image  a kernel of a device with a compiler of its own: its whole text, its code, a checksum
 *   IDENTITY-HASH.choice a key of tuning_cache.h, its value, a checksum
 *
 * HASH is the hash of the file's source, IDENTITY that of compiler, version, flags, CPU and the texts of src/core. The
 * files are in `headrace` in the user's cache folder, or in `headrace-kernels` in the folder that HEADRACE_CACHE names.
 * No file of another name is read, written or removed. The folder is opened once (base/folder.h: it belongs to the
 * user, and no other user can replace it), and its files through that descriptor.
 *
 * Files are renamed into place atomically, so processes can share a folder. A file that is truncated, damaged or
 * foreign counts as absent and is written again. If the folder holds more than HEADRACE_CACHE_BYTES, the least recently
 * used files are removed. Threads: any, each with a cache of its own, or with one that no other thread opens or ends
 * meanwhile.
 */
#ifndef HEADRACE_ENGINE_DISK_CACHE_H_
#define HEADRACE_ENGINE_DISK_CACHE_H_

#include <stdint.h>
#include <sys/types.h>

#include "base/table.h"
#include "base/text.h"
#include "headrace/kernel_files.h"
#include "headrace/status.h"

typedef struct hr_disk_cache {
  int folder;   /* a descriptor */
  dev_t device; /* of the folder: a program that closes all descriptors may give the number to another file */
  ino_t inode;
  uint64_t identity;
} hr_disk_cache;

/* Opens, and if need be makes, the folder that the environment names. FAILED_PRECONDITION if the cache is off, or if
 * the existing folder can't be trusted; the latter also prints one warning in a process. */
HR_MUST_USE hr_status hr__disk_cache_open(uint64_t identity, hr_disk_cache *out_cache);
void hr__disk_cache_fini(hr_disk_cache *cache);
/* Appends the path of the folder that the environment names; false when it names none. */
bool hr__disk_cache_path(hr_text *out_path);
/* Counts the cache's files in the folder, and their bytes. */
void hr__disk_cache_measure(const hr_disk_cache *cache, int64_t *out_files, int64_t *out_bytes);

/* Opens an intact library that has the kernel of this text, for reading; false if there is none. The descriptor reads
 * the bytes that were checked. */
bool hr__disk_cache_find(const hr_disk_cache *cache, const char *text, size_t length, int *out_file);
/* Stores the library behind the descriptor `library`, made from `text`; gives its name in the cache. */
HR_MUST_USE hr_status hr__disk_cache_add_library(const hr_disk_cache *cache, const char *text, size_t length,
                                                 int library, hr_text *out_name);
/* Notes that the library `name` has the kernel of this text. */
HR_MUST_USE hr_status hr__disk_cache_add_kernel(const hr_disk_cache *cache, const char *text, size_t length,
                                                const char *name);
/* Appends the code of a kernel of a device; false when there is none for this text. */
bool hr__disk_cache_find_image(const hr_disk_cache *cache, const char *text, size_t length, hr_text *out_image);
HR_MUST_USE hr_status hr__disk_cache_add_image(const hr_disk_cache *cache, const char *text, size_t length,
                                               const char *image, size_t image_length);
/* The same for a tuning-cache entry, whose IDENTITY is the version of keys and values. */
bool hr__disk_cache_find_tuning(const hr_disk_cache *cache, const char *key, size_t length, hr_text *out_value);
HR_MUST_USE hr_status hr__disk_cache_add_tuning(const hr_disk_cache *cache, const char *key, size_t length,
                                                const char *value, size_t value_length);
/* Puts the hashes of all tuning-cache entries of this identity into a table, with any value but NULL. False: no memory,
 * or there are more than `most`. */
bool hr__disk_cache_list_tunings(const hr_disk_cache *cache, size_t most, hr_table *out_hashes);
/* The hash of a key in that table. */
uint64_t hr__disk_cache_hash(const hr_disk_cache *cache, const char *key, size_t length);
/* hr_kernel_files_each and hr_kernel_files_add, in this folder. */
HR_MUST_USE hr_status hr__disk_cache_each(const hr_disk_cache *cache, int64_t since_ns,
                                          hr_status (*visit)(void *arg, const hr_kernel_file *file), void *arg);
HR_MUST_USE hr_status hr__disk_cache_add_file(const hr_disk_cache *cache, const hr_kernel_file *file);
/* If the folder holds more than the limit according to SIZE: removes old files until less is left, and corrects
 * SIZE. */
void hr__disk_cache_trim(const hr_disk_cache *cache);

#endif
