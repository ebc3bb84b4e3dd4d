/* packed_weights.c: weights packed into the library's layouts, cached from run to run.
 *
 * A run receives the stamp of the weight's contents. Contents seen for the second time, by any program, are packed into
 * the library's layout and published (runtime/cached_weights.h); later runs find and use them. A weight that changes
 * with each run costs a look-up, and no memory.
 *
 * Convolutions without a cached weight reorder it in every run. Products read stored weights, and have a second
 * primitive for packed ones. It should give the same bits, which depend on the order of the sums. So after its weight
 * was made, the second primitive repeats the run into other memory, until two products that share it gave the same
 * bits. If a bit differs, it is never used: results may not change between one run of a program and the next. A product
 * whose weight other programs have cached repeats its second run, so that dims that occur once cost no repetition.
 */
#include <string.h>

#include "base/allocator.h"
#include "providers/onednn/pipe.h"

enum { ALIGNMENT = 64 };

/* ---- recipes ---- */

static void add_words(pipe_cached *kept, int count, const int64_t *words) {
  for (int i = 0; i < count; ++i) {
    if (kept->word_count < PIPE_RECIPE_MAX) {
      kept->recipe[kept->word_count] = (uint64_t)words[i];
    }
    ++kept->word_count;
  }
}

/* Appends everything that defines a layout of dense blocks; false for other layouts. */
static bool add_layout(pipe_cached *kept, dnnl_const_memory_desc desc) {
  static const int numbers[] = {DNNL_QUERY_FORMAT_KIND, DNNL_QUERY_DTYPE, DNNL_QUERY_RANK,
                                DNNL_QUERY_INNER_BLOCK_COUNT};
  static const int lists[] = {DNNL_QUERY_DIMS, DNNL_QUERY_PADDED_DIMS, DNNL_QUERY_STRIDES, DNNL_QUERY_INNER_BLOCKS,
                              DNNL_QUERY_INNER_DIMS};
  int values[4] = {0};
  for (int i = 0; i < 4; ++i) {
    if (hr__dnnl()->memory_desc_query(desc, numbers[i], &values[i]) != DNNL_SUCCESS) {
      return false;
    }
    add_words(kept, 1, &(const int64_t){values[i]});
  }
  if (values[0] != DNNL_FORMAT_BLOCKED) {
    return false;
  }
  for (int i = 0; i < 5; ++i) {
    const int64_t *list = NULL;
    if (hr__dnnl()->memory_desc_query(desc, lists[i], &list) != DNNL_SUCCESS || list == NULL) {
      return false;
    }
    add_words(kept, i < 3 ? values[2] : values[3], list);
  }
  return true;
}

void hr__pipe_keep(hr_prepared *pipe, int arg, int64_t offset, dnnl_const_memory_desc from, int memory,
                   dnnl_const_memory_desc to) {
  pipe_cached *kept = &pipe->kept;
  if (pipe->status != HR_OK) {
    return;
  }
  *kept = (pipe_cached){.arg = arg, .memory = memory, .proof_step = -1};
  kept->bytes = hr__dnnl()->memory_desc_get_size(to);
  add_words(kept, 1, &offset);
  if (!add_layout(kept, from) || !add_layout(kept, to) || kept->word_count > PIPE_RECIPE_MAX) {
    kept->arg = -1;
  }
}

void hr__pipe_keep_on_proof(hr_prepared *pipe, int output, dnnl_const_memory_desc desc) {
  if (pipe->status == HR_OK) {
    pipe->kept.proof_step = pipe->step_count - 1;
    pipe->kept.output = output;
    pipe->kept.output_bytes = hr__dnnl()->memory_desc_get_size(desc);
  }
}

/* ---- runs ---- */

/* The proof of another product with the same primitive. */
static void note_proof(pipe_cached *kept, hr__dnnl_proof proof) {
  kept->arg = proof == HR__DNNL_OTHER_BITS ? -1 : kept->arg;
  kept->proof_step = proof == HR__DNNL_UNPROVED ? kept->proof_step : -1;
}

pipe_keeping hr__pipe_cached_begin(hr_prepared *pipe, hr_cached_weights **out_weight) {
  pipe_cached *kept = &pipe->kept;
  if (kept->arg >= 0 && kept->proof_step >= 0) {
    note_proof(kept, hr__dnnl_primitive_proof(pipe->steps[kept->proof_step].shared));
  }
  if (kept->arg < 0) {
    return PIPE_KEEP_NOTHING;
  }
  bool is_new, is_first = !kept->has_run;
  kept->has_run = true;
  *out_weight = hr__cached_weights_get(kept->stamp, kept->recipe, (size_t)kept->word_count, kept->bytes, &is_new);
  return *out_weight == NULL    ? PIPE_KEEP_NOTHING
         : is_new               ? PIPE_KEEP_MAKE
         : kept->proof_step < 0 ? PIPE_KEEP_USE
         : is_first             ? PIPE_KEEP_NOTHING
                                : PIPE_KEEP_PROVE;
}

/* True if sums in another order would show in the output: it is not mostly one number, as of zeros. */
static bool is_telling(const void *output, size_t bytes) {
  const uint32_t *words = output;
  size_t count = bytes / sizeof *words, changes = 0;
  for (size_t i = 1; i < count; ++i) {
    changes += words[i] != words[i - 1];
  }
  return 2 * changes >= count;
}

/* Repeats the run with the cached weight, into other memory. Without memory the proof fails. */
static bool is_proved(hr_prepared *pipe) {
  pipe_cached *kept = &pipe->kept;
  dnnl_memory output = pipe->memories[kept->output].memory;
  void *made = NULL, *again = hr_aligned_malloc(kept->output_bytes, ALIGNMENT);
  bool is_same = false;
  if (again != NULL && hr__dnnl()->memory_get_data_handle(output, &made) == DNNL_SUCCESS) {
    memcpy(again, made, kept->output_bytes); /* elements between rows */
    hr__dnnl()->memory_set_data_handle(output, again);
    if (hr__pipe_execute(pipe, &pipe->steps[kept->proof_step]) == DNNL_SUCCESS) {
      is_same = memcmp(again, made, kept->output_bytes) == 0;
      if (!is_same || is_telling(made, kept->output_bytes)) {
        hr__dnnl_primitive_prove(pipe->steps[kept->proof_step].shared, is_same);
      }
      note_proof(kept, is_same ? HR__DNNL_SAME_BITS : HR__DNNL_OTHER_BITS);
    }
    hr__dnnl()->memory_set_data_handle(output, made);
  }
  hr_aligned_free(again);
  return is_same;
}

void hr__pipe_cached_end(hr_prepared *pipe, pipe_keeping keeping, hr_cached_weights *weight) {
  bool is_good = true;
  if (keeping == PIPE_KEEP_MAKE || keeping == PIPE_KEEP_PROVE) {
    is_good = pipe->kept.proof_step < 0 || is_proved(pipe);
  }
  if (keeping == PIPE_KEEP_MAKE && is_good) {
    hr__cached_weights_publish(weight);
  }
}
