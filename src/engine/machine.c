#include "engine/machine.h"

#include <string.h>

#include "base/allocator.h"
#include "base/context.h"
#include "base/cpu.h"
#include "base/log.h"
#include "base/thread.h"

/* Many short slices, of which the best counts: other processes interrupt the rest. */
enum { BLOCK_WORDS = 1 << 14, SLICE_BLOCKS = 64, SLICES = 16, PASSES = 3, CHAINS = 12, ROUNDS = 1 << 17, PEAKS = 24 };
static const int64_t SLICE_BYTES = (int64_t)BLOCK_WORDS * SLICE_BLOCKS * 8, BYTES = SLICE_BYTES * SLICES;

/* ---- memory ---- */

typedef struct read_work {
  uint64_t *words;
  int slice;
  uint64_t sums[HR_THREADS_MAX];
} read_work;

static void fill_range(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  memset(((read_work *)arg)->words + begin * BLOCK_WORDS, 1, (size_t)(end - begin) * BLOCK_WORDS * sizeof(uint64_t));
}

static void read_range(void *arg, int64_t begin, int64_t end, int worker) {
  read_work *work = arg;
  uint64_t sum = 0;
  const uint64_t *words = work->words + (int64_t)work->slice * SLICE_BLOCKS * BLOCK_WORDS;
  for (int64_t i = begin * BLOCK_WORDS; i < end * BLOCK_WORDS; ++i) {
    sum += words[i];
  }
  work->sums[worker] = sum;
}

/* Passes over 128 MB, slice by slice; the first touch, with its page faults, does not count. */
static double measure_read(void) {
  read_work *work = hr_calloc(1, sizeof *work);
  int64_t best = 0;
  if (work != NULL) {
    work->words = hr_aligned_malloc((size_t)BYTES, 4096);
  }
  if (work != NULL && work->words != NULL) {
    hr_parallel_for(SLICES * SLICE_BLOCKS, 1, fill_range, work);
    for (int i = 0; i < PASSES * SLICES; ++i) {
      work->slice = i % SLICES;
      int64_t begin = hr_clock_ns();
      hr_parallel_for(SLICE_BLOCKS, 1, read_range, work);
      int64_t ns = hr_clock_ns() - begin;
      best = best == 0 || ns < best ? ns : best;
    }
    hr_aligned_free(work->words);
  }
  hr_free(work);
  return best > 0 ? (double)SLICE_BYTES / (double)best : 0;
}

/* ---- arithmetic: independent chains of multiply-adds that stay in registers, as wide as the processor has them ----
 */

typedef float (*peak_fn)(int64_t rounds, float factor);

#ifdef __clang__
#define HR_FUSES _Pragma("clang fp contract(fast)")
#define HR_FUSING
#else
#define HR_FUSES
#define HR_FUSING __attribute__((optimize("fp-contract=fast")))
#endif

#define HR_PEAK(NAME, BYTES, ...)                                         \
  typedef float NAME##_vector __attribute__((vector_size(BYTES)));        \
  HR_FUSING __VA_ARGS__ static float NAME(int64_t rounds, float factor) { \
    HR_FUSES                                                              \
    NAME##_vector chains[CHAINS], by = {0};                               \
    by += factor;                                                         \
    for (int c = 0; c < CHAINS; ++c) {                                    \
      chains[c] = by * (float)c;                                          \
    }                                                                     \
    for (int64_t i = 0; i < rounds; ++i) {                                \
      _Pragma("GCC unroll 12") for (int c = 0; c < CHAINS; ++c) {         \
        chains[c] = chains[c] * by + by;                                  \
      }                                                                   \
    }                                                                     \
    for (int c = 1; c < CHAINS; ++c) {                                    \
      chains[0] += chains[c];                                             \
    }                                                                     \
    return chains[0][0];                                                  \
  }

HR_PEAK(peak_plain, 16, )
#ifdef __x86_64__
HR_PEAK(peak_avx2, 32, __attribute__((target("avx2,fma"))))
HR_PEAK(peak_avx512, 64, __attribute__((target("avx512f"))))
#endif

/* The widest form that this processor has, and its elements. */
static peak_fn choose_peak(int *out_lanes) {
#ifdef __x86_64__
  if (hr_cpu_has(HR_CPU_AVX512F)) {
    *out_lanes = 16;
    return peak_avx512;
  }
  if (hr_cpu_has(HR_CPU_AVX2) && hr_cpu_has(HR_CPU_FMA)) {
    *out_lanes = 8;
    return peak_avx2;
  }
#endif
  *out_lanes = 4;
  return peak_plain;
}

typedef struct peak_work {
  peak_fn fn;
  float results[HR_THREADS_MAX];
} peak_work;

static void peak_range(void *arg, int64_t begin, int64_t end, int worker) {
  peak_work *work = arg;
  work->results[worker] = work->fn((end - begin) * ROUNDS, 0.5f);
}

static double measure_peak(void) {
  peak_work *work = hr_calloc(1, sizeof *work);
  int threads = hr_thread_count(), lanes;
  int64_t best = 0;
  if (work == NULL) {
    return 0;
  }
  work->fn = choose_peak(&lanes);
  for (int i = 0; i < PEAKS; ++i) {
    int64_t begin = hr_clock_ns();
    hr_parallel_for(threads, 1, peak_range, work);
    int64_t ns = hr_clock_ns() - begin;
    best = best == 0 || ns < best ? ns : best;
  }
  hr_free(work);
  return best > 0 ? 2.0 * threads * ROUNDS * CHAINS * lanes / (double)best : 0;
}

typedef struct measured {
  hr_mutex mutex;
  bool is_measured;
  hr_machine machine;
} measured;

static void init_measured(void *part) {
  hr_mutex_init(&((measured *)part)->mutex);
}

const hr_machine *hr__machine(void) {
  static const hr_context_part kind = {.bytes = sizeof(measured), .init = init_measured};
  measured *own = hr__context_part(&hr__context_first, HR_CONTEXT_MACHINE, &kind); /* there is one machine */
  hr_mutex_lock(&own->mutex);
  if (!own->is_measured) {
    own->machine = (hr_machine){measure_read(), measure_peak()};
    own->is_measured = true;
    hr_log(HR_LOG_KERNEL, "this machine reads %.0f GB/s, %d threads, %.0f GFLOP/s f32", own->machine.read_gbs,
           hr_thread_count(), own->machine.peak_gflops);
  }
  hr_mutex_unlock(&own->mutex);
  return &own->machine;
}

double hr__device_gbs(const hr_device *device) {
  const hr_device_properties *properties = &device->properties;
  bool is_measured = properties->memory_gbs <= 0 && properties->is_host && properties->has_contents;
  return is_measured ? hr__machine()->read_gbs : properties->memory_gbs;
}
