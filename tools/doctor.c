/* doctor.c: `headrace doctor`: lists this machine's features, the missing ones, and the command that installs each.
 *
 * Each line reports one item: "ok", "missing" (without it Headrace is several times slower: exit status 1) or "no"
 * (only some features need it). The search is the same as in programs.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/env.h"
#include "base/places.h"
#include "base/thread.h"
#include "commands.h"
#include "engine/disk_cache.h"
#include "engine/host_compiler.h"
#include "runtime/device.h"

typedef enum verdict { FOUND, ABSENT, MISSING } verdict;

/* Prints a line, and below it the remedy (or NULL); returns 1 if something essential is missing. */
static int report(verdict kind, const char *what, const char *remedy, const char *format, ...) HR_PRINTF(4, 5);

static int report(verdict kind, const char *what, const char *remedy, const char *format, ...) {
  static const char *const words[] = {[FOUND] = "ok", [ABSENT] = "no", [MISSING] = "missing"};
  va_list args;
  printf("%-8s %-10s ", words[kind], what);
  va_start(args, format);
  vprintf(format, args);
  va_end(args);
  printf("\n");
  if (remedy != NULL) {
    printf("%-8s %-10s -> %s\n", "", "", remedy);
  }
  return kind == MISSING;
}

/* ---- the machine ---- */

static int check_cpu(void) {
  hr_text features = {0};
  hr_cpu_describe(&features);
  report(FOUND, "cpu", NULL, "%s; %d threads", hr_text_chars(&features), hr_thread_count());
  hr_text_fini(&features);
  return 0;
}

/* ---- libraries ---- */

typedef struct version_numbers { /* dnnl_version_t */
  int major, minor, patch;
} version_numbers;

/* The path of the library that has a symbol. */
static const char *path_of(void *address) {
  static Dl_info info;
  return dladdr(address, &info) != 0 && info.dli_fname != NULL ? info.dli_fname : "";
}

static void *find(const hr_dynlib *library, const char *name) {
  void *address = NULL;
  hr_status_ignore(hr_dynlib_symbol(library, name, &address));
  return address;
}

static int check_onednn(void) {
  hr_dynlib library = {0};
  const version_numbers *(*version)(void) = NULL;
  hr_status status = hr_places_open(&hr_place_onednn, NULL, &library);
  void *address = status == HR_OK ? find(&library, "dnnl_version") : NULL;
  int failed;
  if (address == NULL) {
    failed = report(MISSING, "oneDNN", "pip install onednn-cpu-gomp, or HEADRACE_ONEDNN=<path of libdnnl.so.3>",
                    "products and convolutions run slowly: %s",
                    status != HR_OK ? hr_status_message(status) : "the library has no dnnl_version");
  } else {
    memcpy(&version, &address, sizeof address);
    const version_numbers *v = version();
    failed = report(FOUND, "oneDNN", NULL, "%d.%d.%d, %s", v->major, v->minor, v->patch, path_of(address));
  }
  hr_status_ignore(status);
  return failed;
}

static int check_lapack(void) {
  static const char *const names[] = {"scipy_openblas_get_config", "openblas_get_config", "scipy_dgesv_", "dgesv_"};
  hr_dynlib library = {0};
  hr_status status = hr_places_open(&hr_place_lapack, NULL, &library);
  void *address = NULL;
  int at = 0;
  for (; status == HR_OK && address == NULL && at < 4; ++at) {
    address = find(&library, names[at]);
  }
  if (address == NULL) {
    report(ABSENT, "OpenBLAS", "pip install scipy-openblas32, or HEADRACE_LAPACK=<path>",
           "linear algebra (torch.linalg) does not run: %s",
           status != HR_OK ? hr_status_message(status) : "the library has no dgesv");
  } else {
    char *(*config)(void) = NULL;
    memcpy(&config, &address, sizeof address);
    report(FOUND, "OpenBLAS", NULL, "%s, %s", at <= 2 ? config() : "a LAPACK", path_of(address));
  }
  hr_status_ignore(status);
  return 0;
}

/* ---- the compiler ---- */

/* Compiles a function, loads it and calls it. */
static hr_status try_compiler(const hr_host_compiler *compiler, double *out_ms) {
  static const char text[] = "__attribute__((visibility(\"default\"))) int answer_0(void) { return 42; }\n";
  hr_text path = {0};
  hr_dynlib library = {0};
  int (*answer)(void) = NULL;
  void *address = NULL;
  int64_t begin = hr_clock_ns();
  HR_RETURN_IF_ERROR(hr__host_compile(compiler, text, sizeof text - 1, NULL, &path));
  *out_ms = (double)(hr_clock_ns() - begin) * 1e-6;
  int file = open(hr_text_chars(&path), O_RDONLY | O_CLOEXEC);
  hr_status status = hr_dynlib_open_file(file, &library);
  if (status == HR_OK) {
    address = find(&library, "answer_0");
  }
  memcpy(&answer, &address, sizeof address);
  if (status == HR_OK && (answer == NULL || answer() != 42)) {
    status = hr_status_make(HR_STATUS_INTERNAL, "\"%s\" makes wrong code", compiler->path);
  }
  hr_dynlib_close(&library);
  if (file >= 0) {
    close(file);
  }
  hr__host_compiler_remove(hr_text_chars(&path));
  hr_text_fini(&path);
  return status;
}

static hr_status check_one_compiler(const hr_host_compiler *compiler) {
  uint64_t hash;
  bool is_gcc;
  double ms = 0;
  hr_text version = {0};
  hr_status status = hr__host_compiler_identity(compiler, &hash, &is_gcc, &version);
  status = status != HR_OK ? status : try_compiler(compiler, &ms);
  if (status == HR_OK) {
    report(FOUND, "compiler", NULL, "%s%s: %s; a trial took %.0f ms", compiler->path, compiler->is_zig ? " cc" : "",
           hr_text_chars(&version), ms);
  }
  hr_text_fini(&version);
  return status;
}

/* Checks the first compiler that works, as the compile queue does. */
static int check_compiler(void) {
  static const char remedy[] = "pip install headrace[compiler], or apt install gcc, or HEADRACE_CC=<path>";
  hr_host_compiler compiler;
  hr_status first = HR_OK;
  for (int rank = 0;; ++rank) {
    hr_status status = hr__host_compiler_find(rank, &compiler);
    bool is_end = status != HR_OK;
    status = is_end ? status : check_one_compiler(&compiler);
    if (status == HR_OK) {
      hr_status_ignore(first);
      return 0;
    }
    if (first == HR_OK) {
      first = status;
    } else {
      hr_status_ignore(status);
    }
    if (is_end) {
      break;
    }
  }
  int failed = report(MISSING, "compiler", remedy, "kernels are interpreted, which takes several times as long: %s",
                      hr_status_message(first));
  hr_status_ignore(first);
  return failed;
}

/* ---- the cache ---- */

static int check_open_cache(const hr_disk_cache *cache, const char *path) {
  struct statvfs mount;
  int64_t files, bytes;
  hr__disk_cache_measure(cache, &files, &bytes);
  bool is_noexec = fstatvfs(cache->folder, &mount) == 0 && (mount.f_flag & ST_NOEXEC) != 0;
  return report(FOUND, "cache", NULL, "%s: %lld files, %.1f MB of %.0f MB%s", path, (long long)files,
                (double)bytes * 1e-6, (double)hr_env_int(HR_ENV_CACHE_BYTES) * 1e-6,
                is_noexec ? "; its mount forbids execution, so libraries are copied to memory" : "");
}

static int check_cache(void) {
  hr_disk_cache cache;
  hr_text path = {0};
  if (strcmp(hr_env_text(HR_ENV_CACHE), "-") == 0) {
    report(ABSENT, "cache", NULL, "HEADRACE_CACHE is -: each process compiles its own kernels");
    return 0;
  }
  (void)hr__disk_cache_path(&path);
  hr_status status = hr__disk_cache_open(0, &cache);
  int failed;
  if (status == HR_OK) {
    failed = check_open_cache(&cache, hr_text_chars(&path));
    hr__disk_cache_fini(&cache);
  } else {
    failed = report(MISSING, "cache", "HEADRACE_CACHE=<a folder of yours>, or HEADRACE_CACHE=- for none", "%s",
                    hr_status_message(status));
  }
  hr_status_ignore(status);
  hr_text_fini(&path);
  return failed;
}

/* ---- the GPU ---- */

typedef struct gpu_library {
  const char *title, *names[4], *version_name, *remedy;
} gpu_library;

static const gpu_library gpu_libraries[] = {
    {"NVRTC", {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}, "nvrtcVersion", "pip install nvidia-cuda-nvrtc"},
    {"cuBLASLt", {"libcublasLt.so.13", "libcublasLt.so.12"}, "cublasLtGetVersion", "pip install nvidia-cublas"},
    {"cuDNN", {"libcudnn.so.9"}, "cudnnGetVersion", "pip install nvidia-cudnn-cu13"}};

static void check_gpu_library(const gpu_library *row) {
  hr_dynlib library = {0};
  hr_status status = hr_places_open_cuda(row->names, &library);
  void *address = status == HR_OK ? find(&library, row->version_name) : NULL;
  if (address == NULL) {
    report(ABSENT, row->title, row->remedy, "%s",
           status != HR_OK ? hr_status_message(status) : "the library has no version");
  } else if (strcmp(row->version_name, "nvrtcVersion") == 0) {
    int (*version)(int *major, int *minor), major = 0, minor = 0;
    memcpy(&version, &address, sizeof address);
    (void)version(&major, &minor);
    report(FOUND, row->title, NULL, "%d.%d, %s", major, minor, path_of(address));
  } else {
    size_t (*version)(void);
    memcpy(&version, &address, sizeof address);
    report(FOUND, row->title, NULL, "%zu, %s", version(), path_of(address));
  }
  hr_status_ignore(status);
}

static void check_gpu(void) {
  for (int i = 0; hr_drivers[i] != NULL; ++i) {
    const hr_driver *driver = hr_drivers[i];
    if (strcmp(driver->name, "cuda") != 0) {
      continue;
    }
    int count = driver->count();
    if (count == 0) {
      hr_status why = driver->why_none != NULL ? driver->why_none() : HR_OK;
      report(ABSENT, "GPU", NULL, "%s", why != HR_OK ? hr_status_message(why) : "none");
      hr_status_ignore(why);
      return;
    }
    report(FOUND, "GPU", NULL, "%d of CUDA's; `headrace devices` lists them", count);
    for (size_t k = 0; k < sizeof gpu_libraries / sizeof *gpu_libraries; ++k) {
      check_gpu_library(&gpu_libraries[k]);
    }
  }
}

/* ---- torch ---- */

/* The text between quotes after `__version__` in a file; empty for none. */
static void read_version(const char *path, char out_version[64]) {
  char line[512];
  FILE *file = fopen(path, "r");
  out_version[0] = '\0';
  while (file != NULL && out_version[0] == '\0' && fgets(line, sizeof line, file) != NULL) {
    if (strncmp(line, "__version__", 11) == 0) {
      (void)sscanf(line, "%*[^'\"]%*['\"]%63[^'\"]", out_version);
    }
  }
  if (file != NULL) {
    fclose(file);
  }
}

static void check_torch(void) {
  static const char *const patterns[] = {"torch/version.py", NULL};
  hr_text paths = {0};
  if (!hr_places_find(patterns, true, &paths)) {
    report(ABSENT, "torch", "pip install headrace[torch], in the environment of this command",
           "none beside this command; C programs need none");
  }
  for (char *at = paths.data; at != NULL && *at != '\0';) {
    char version[64], *end = at + strcspn(at, ":");
    char *next = *end == ':' ? end + 1 : end;
    *end = '\0';
    read_version(at, version);
    report(FOUND, "torch", NULL, "%s, %.*s", version, (int)(strlen(at) - strlen("/torch/version.py")), at);
    at = next;
  }
  hr_text_fini(&paths);
}

int headrace_doctor(int argc, char **argv) {
  if (argc > 0) {
    return headrace_bad_argument("doctor", argv[0]);
  }
  int missing = check_cpu();
  missing += check_onednn();
  missing += check_lapack();
  missing += check_compiler();
  missing += check_cache();
  check_gpu();
  check_torch();
  printf(missing > 0 ? "\n%d missing; see the arrows above\n" : "\nall that is essential is here\n", missing);
  return missing > 0;
}
