#include "engine/host_fallback.h"

#include "base/allocator.h"
#include "base/integer.h"
#include "core/ir/dtype.h"

enum { ARGS_MAX = 32, ALIGNMENT = 64 };

/* The bytes of its buffer that an operand spans, and the place of their copy in the host's block. */
typedef struct span {
  size_t begin, bytes, at;
  bool is_copied_in, is_copied_out;
} span;

struct hr_host_fallback {
  int operand_count, arg_count; /* operands come first among the arguments */
  span spans[ARGS_MAX];
  size_t workspace_at, bytes;
};

static span span_of(const hr_operand *x) {
  int64_t low = x->offset, high = x->offset, count = 1;
  for (int d = 0; d < x->rank; ++d) {
    int64_t reach = (x->dims[d] - 1) * x->strides[d];
    low += reach < 0 ? reach : 0;
    high += reach > 0 ? reach : 0;
    count *= x->dims[d];
  }
  size_t size = hr_dtype_size(x->dtype);
  span s = {.begin = (size_t)low * size, .bytes = count > 0 ? (size_t)(high - low + 1) * size : 0};
  s.is_copied_in = s.bytes != (size_t)count * size; /* of a result: bytes between its elements are preserved */
  return s;
}

static size_t add_block(hr_host_fallback *fallback, size_t bytes) {
  size_t at = fallback->bytes;
  fallback->bytes += hr_align_up(bytes, ALIGNMENT);
  return at;
}

static void add_operand(hr_host_fallback *fallback, const hr_operand *x, bool is_result) {
  span *s = &fallback->spans[fallback->operand_count++];
  if (x->kind == HR_OPERAND_VALUE) {
    *s = span_of(x);
    s->at = add_block(fallback, s->bytes);
    s->is_copied_in |= !is_result;
    s->is_copied_out = is_result;
  }
}

hr_status hr__host_fallback_create(const hr_node *node, size_t workspace_bytes, hr_host_fallback **out_fallback) {
  int arg_count = node->input_count + node->output_count + node->scalar_count;
  hr_host_fallback *fallback = arg_count <= ARGS_MAX ? hr_calloc(1, sizeof *fallback) : NULL;
  if (fallback == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a step of %d arguments", arg_count);
  }
  fallback->arg_count = arg_count;
  for (int i = 0; i < node->input_count; ++i) {
    add_operand(fallback, &node->inputs[i], false);
  }
  for (int i = 0; i < node->output_count; ++i) {
    add_operand(fallback, &node->outputs[i], true);
  }
  fallback->workspace_at = add_block(fallback, workspace_bytes);
  *out_fallback = fallback;
  return HR_OK;
}

void hr__host_fallback_destroy(hr_host_fallback *fallback) {
  hr_free(fallback);
}

static hr_status copy_in(const hr_host_fallback *fallback, const hr_driver *driver, void *impl, void *const *args,
                         char *block) {
  for (int i = 0; i < fallback->operand_count; ++i) {
    const span *s = &fallback->spans[i];
    if (s->is_copied_in && s->bytes > 0) {
      const char *from = (const char *)args[i] + s->begin;
      HR_RETURN_IF_ERROR(driver->copy_out(impl, block + s->at, from, s->bytes));
    }
  }
  return HR_OK;
}

static hr_status copy_back(const hr_host_fallback *fallback, const hr_driver *driver, void *impl, void *const *args,
                           const char *block) {
  for (int i = 0; i < fallback->operand_count; ++i) {
    const span *s = &fallback->spans[i];
    if (s->is_copied_out && s->bytes > 0) {
      char *to = (char *)args[i] + s->begin;
      HR_RETURN_IF_ERROR(driver->copy_in(impl, to, block + s->at, s->bytes));
    }
  }
  return HR_OK;
}

hr_status hr__host_fallback_run(const hr_host_fallback *fallback, const hr_driver *driver, void *impl,
                                const hr_provider *provider, hr_prepared *prepared, void *const *args) {
  void *host_args[ARGS_MAX];
  char *memory = hr_malloc(fallback->bytes + ALIGNMENT);
  if (memory == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for operands of %zu bytes", fallback->bytes);
  }
  char *block = memory + (ALIGNMENT - (uintptr_t)memory % ALIGNMENT) % ALIGNMENT;
  for (int i = 0; i < fallback->arg_count; ++i) {
    const span *s = &fallback->spans[i]; /* the operand's own offset is added below */
    bool is_copied = i < fallback->operand_count && (s->is_copied_in || s->is_copied_out);
    host_args[i] = is_copied ? (void *)((uintptr_t)(block + s->at) - s->begin) : args[i];
  }
  hr_status status = copy_in(fallback, driver, impl, args, block);
  if (status == HR_OK) {
    status = provider->run(prepared, host_args, block + fallback->workspace_at, NULL);
  }
  if (status == HR_OK) {
    status = copy_back(fallback, driver, impl, args, block);
  }
  hr_free(memory);
  return status;
}
