/* kernel_files.c: the public face of disk_cache.h, for packages. */
#include "headrace/kernel_files.h"

#include "engine/disk_cache.h"

hr_status hr_kernel_files_each(int64_t since_ns, hr_status (*visit)(void *arg, const hr_kernel_file *file), void *arg) {
  hr_disk_cache cache;
  HR_RETURN_IF_ERROR(hr__disk_cache_open(0, &cache));
  hr_status status = hr__disk_cache_each(&cache, since_ns, visit, arg);
  hr__disk_cache_fini(&cache);
  return status;
}

hr_status hr_kernel_files_add(const hr_kernel_file *file) {
  hr_disk_cache cache;
  HR_RETURN_IF_ERROR(hr__disk_cache_open(0, &cache));
  hr_status status = hr__disk_cache_add_file(&cache, file);
  hr__disk_cache_fini(&cache);
  return status;
}
