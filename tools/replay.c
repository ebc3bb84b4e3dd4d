#include "replay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocator.h"
#include "base/text.h"
#include "base/thread.h"

/* ---- the file ---- */

static hr_status read_file(const char *path, char **out_text) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) {
    return hr_status_make(HR_STATUS_NOT_FOUND, "can't open \"%s\": %s", path, strerror(errno));
  }
  size_t count = 0, capacity = 1 << 16;
  char *text = hr_malloc(capacity);
  while (text != NULL) {
    count += fread(text + count, 1, capacity - 1 - count, file);
    if (count < capacity - 1) {
      text[count] = '\0';
      break;
    }
    char *larger = hr_realloc(text, capacity *= 2);
    if (larger == NULL) {
      hr_free(text);
    }
    text = larger;
  }
  hr_status status = HR_OK;
  if (text == NULL) {
    status = hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for \"%s\"", path);
  } else if (ferror(file)) {
    status = hr_status_make(HR_STATUS_UNAVAILABLE, "can't read \"%s\": %s", path, strerror(errno));
    hr_free(text);
  } else {
    *out_text = text;
  }
  fclose(file);
  return status;
}

/* "; place 7 jit(f)/add f.py:3": the place of an operation. */
static void read_place(replay *r, const char *line) {
  int index, used;
  if (sscanf(line, "; place %d %n", &index, &used) == 1 && index >= 0 && index < r->program.node_count &&
      r->places[index] == NULL) {
    hr_text text = {0};
    hr_text_append_bytes(&text, line + used, strcspn(line + used, "\n"));
    r->places[index] = hr_text_take(&text);
  }
}

/* "; argument 3 f64 0.5": the value of an argument; other comments are ignored. */
static void read_argument(replay *r, const char *line) {
  int index, used;
  char dtype[16];
  hr_scalar scalar = {0};
  if (sscanf(line, "; argument %d %15s %n", &index, dtype, &used) != 2 || index < 0 ||
      index >= r->program.argument_count) {
    return;
  }
  scalar.dtype = hr_dtype_parse(dtype);
  if (scalar.dtype == HR_DTYPE_F64 || scalar.dtype == HR_DTYPE_C128) {
    char *end;
    scalar.value.f[0] = strtod(line + used, &end);
    scalar.value.f[1] = strtod(end, NULL);
  } else if (scalar.dtype == HR_DTYPE_U64) {
    scalar.value.u = strtoull(line + used, NULL, 10);
  } else {
    scalar.value.i = strtoll(line + used, NULL, 10);
  }
  r->arguments[index] = scalar;
}

static hr_status parse(replay *r, char *text) {
  HR_RETURN_IF_ERROR(hr_program_parse(text, &r->program));
  if (r->program.is_value_form || r->program.node_count == 0) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s",
                          r->program.node_count == 0 ? "no operations in it"
                                                     : "a program in value form; HEADRACE_DUMP writes others");
  }
  HR_RETURN_IF_ERROR(hr_program_verify(&r->program));
  r->arguments = hr_calloc((size_t)r->program.argument_count + 1, sizeof *r->arguments);
  r->buffers = hr_calloc((size_t)r->program.buffer_count + 1, sizeof(hr_buffer *));
  r->handles = hr_calloc((size_t)r->program.buffer_count + 1, sizeof *r->handles);
  r->places = hr_calloc((size_t)r->program.node_count + 1, sizeof *r->places);
  if (r->places == NULL || r->arguments == NULL || r->buffers == NULL || r->handles == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for %d buffers", r->program.buffer_count);
  }
  for (int i = 0; i < r->program.scalar_count; ++i) {
    const hr_program_scalar *scalar = &r->program.scalars[i];
    if (!scalar->is_constant) {
      r->arguments[scalar->argument].dtype = scalar->dtype;
    }
  }
  for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
    line += *line == '\n';
    if (*line == ';') {
      read_argument(r, line);
      read_place(r, line);
    }
  }
  return HR_OK;
}

/* ---- contents ---- */

/* The dtype in which a buffer is first used. */
hr_dtype replay_buffer_dtype(const hr_program *program, uint32_t buffer) {
  for (int i = 0; i < program->node_count; ++i) {
    const hr_node *node = &program->nodes[i];
    for (int j = 0; j < node->input_count + node->output_count; ++j) {
      const hr_operand *x = j < node->input_count ? &node->inputs[j] : &node->outputs[j - node->input_count];
      if (x->kind == HR_OPERAND_VALUE && x->index == buffer) {
        return x->dtype;
      }
    }
  }
  return HR_DTYPE_U8;
}

/* Fills a buffer of the caller's with floats between -1 and 1; other dtypes stay zero. */
static hr_status fill_buffer(replay *r, int b) {
  size_t bytes = r->program.buffers[b].bytes;
  hr_dtype dtype = replay_buffer_dtype(&r->program, (uint32_t)b);
  int64_t dims[1] = {(int64_t)bytes}, strides[1] = {1};
  hr_view view = {.buffer = r->buffers[b], .dtype = HR_DTYPE_U8, .rank = 1, .dims = dims, .strides = strides};
  void *values = hr_calloc(bytes, 1);
  if (values == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for %zu bytes", bytes);
  }
  uint64_t state = (uint64_t)b * 0x9e3779b97f4a7c15u + 1;
  for (size_t i = 0; i < bytes / (dtype == HR_DTYPE_F64 ? 8 : 4) && (dtype == HR_DTYPE_F32 || dtype == HR_DTYPE_F64);
       ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    double value = (double)(int64_t)(state >> 11) / (double)((int64_t)1 << 52) - 1.0;
    if (dtype == HR_DTYPE_F64) {
      ((double *)values)[i] = value;
    } else {
      ((float *)values)[i] = (float)value;
    }
  }
  hr_status status = hr_stream_write(r->stream, &view, values);
  hr_free(values);
  return status;
}

/* ---- recording ---- */

static hr_view to_view(const replay *r, const hr_operand *x) {
  hr_view view = {.dtype = x->dtype, .rank = x->rank, .offset = x->offset, .dims = x->dims, .strides = x->strides};
  if (x->kind == HR_OPERAND_VALUE) {
    view.buffer = r->buffers[x->index];
  } else if (x->kind == HR_OPERAND_SCALAR) {
    const hr_program_scalar *scalar = &r->program.scalars[x->index];
    view.scalar = scalar->is_constant ? &scalar->value : &r->arguments[scalar->argument];
    view.rank = 0;
  }
  return view;
}

static hr_status record_node(replay *r, const hr_node *node) {
  size_t count = (size_t)node->input_count + (size_t)node->output_count;
  hr_view *views = hr_calloc(count + 1, sizeof *views);
  hr_scalar *scalars = hr_calloc((size_t)node->scalar_count + 1, sizeof *scalars);
  hr_status status = hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for %zu operands", count);
  if (views != NULL && scalars != NULL) {
    for (int i = 0; i < node->input_count; ++i) {
      views[i] = to_view(r, &node->inputs[i]);
    }
    for (int i = 0; i < node->output_count; ++i) {
      views[node->input_count + i] = to_view(r, &node->outputs[i]);
    }
    for (int i = 0; i < node->scalar_count; ++i) {
      const hr_program_scalar *scalar = &r->program.scalars[node->scalar_base + (uint32_t)i];
      scalars[i] = scalar->is_constant ? scalar->value : r->arguments[scalar->argument];
    }
    hr_attrs attrs = {node->int_count, node->scalar_count, node->ints, scalars};
    hr_status_free(status);
    status = hr_stream_record(r->stream, node->op, &attrs, node->input_count, views, node->output_count,
                              views + node->input_count);
  }
  hr_free(views);
  hr_free(scalars);
  return status;
}

/* Creates the fresh buffers, and on the first call also the others, with contents. */
static hr_status make_buffers(replay *r) {
  for (int b = 0; b < r->program.buffer_count; ++b) {
    const hr_program_buffer *buffer = &r->program.buffers[b];
    if (r->buffers[b] == NULL) {
      HR_RETURN_IF_ERROR(hr_buffer_create(r->device, buffer->bytes, &r->buffers[b]));
      HR_RETURN_IF_ERROR(buffer->is_fresh || buffer->bytes == 0 ? HR_OK : fill_buffer(r, b));
    }
  }
  return HR_OK;
}

static void drop_buffers(replay *r, bool live_too) {
  for (int b = 0; r->buffers != NULL && b < r->program.buffer_count; ++b) {
    if (live_too || r->program.buffers[b].is_dead) {
      hr_buffer_release(r->buffers[b]);
      r->buffers[b] = NULL;
    }
  }
}

hr_status replay_record(replay *r) {
  HR_RETURN_IF_ERROR(make_buffers(r));
  memcpy(r->handles, r->buffers, (size_t)r->program.buffer_count * sizeof *r->handles);
  for (int i = 0; i < r->program.node_count; ++i) {
    HR_RETURN_IF_ERROR(record_node(r, &r->program.nodes[i]));
  }
  drop_buffers(r, false);
  return HR_OK;
}

hr_status replay_once(replay *r, int64_t *out_ns) {
  for (int b = 0; b < r->program.buffer_count; ++b) {
    if (r->program.buffers[b].is_fresh) {
      hr_buffer_release(r->buffers[b]);
      r->buffers[b] = NULL;
    }
  }
  HR_RETURN_IF_ERROR(make_buffers(r));
  HR_RETURN_IF_ERROR(hr_stream_synchronize(r->stream));
  memcpy(r->handles, r->buffers, (size_t)r->program.buffer_count * sizeof *r->handles);
  int64_t begin = hr_clock_ns();
  for (int i = 0; i < r->program.node_count; ++i) {
    HR_RETURN_IF_ERROR(record_node(r, &r->program.nodes[i]));
  }
  drop_buffers(r, false);
  HR_RETURN_IF_ERROR(hr_stream_synchronize(r->stream));
  *out_ns = hr_clock_ns() - begin;
  return HR_OK;
}

/* ---- life ---- */

hr_status replay_open(replay *r) {
  char *text = NULL;
  HR_RETURN_IF_ERROR(read_file(r->path, &text));
  hr_status status = parse(r, text);
  hr_free(text);
  if (status != HR_OK) {
    return hr_status_annotate(status, "%s", r->path);
  }
  HR_RETURN_IF_ERROR(hr_device_open(r->device_name, &r->device));
  HR_RETURN_IF_ERROR(hr_stream_create(r->device, &r->stream));
  if (r->mode >= 0) {
    hr_stream_set_mode(r->stream, (hr_mode)r->mode);
  }
  return HR_OK;
}

void replay_close(replay *r) {
  drop_buffers(r, true);
  hr_stream_release(r->stream);
  hr_device_release(r->device);
  for (int i = 0; r->places != NULL && i < r->program.node_count; ++i) {
    hr_free(r->places[i]);
  }
  hr_free(r->places);
  hr_program_fini(&r->program);
  hr_free(r->arguments);
  hr_free(r->buffers);
  hr_free(r->handles);
}

/* ---- arguments ---- */

static int parse_mode(const char *word) {
  static const char *const words[] = {[HR_MODE_FUSE] = "fuse", [HR_MODE_EAGER] = "eager", [HR_MODE_STRICT] = "strict"};
  for (int i = 0; i < 3; ++i) {
    if (strcmp(words[i], word) == 0) {
      return i;
    }
  }
  return -1;
}

bool replay_option(replay *r, int argc, char **argv, int *at) {
  bool has_value = *at + 1 < argc;
  if (strcmp(argv[*at], "--device") == 0 && has_value) {
    r->device_name = argv[++*at];
  } else if (strcmp(argv[*at], "--mode") == 0 && has_value && parse_mode(argv[*at + 1]) >= 0) {
    r->mode = parse_mode(argv[++*at]);
  } else if (argv[*at][0] != '-' && r->path == NULL) {
    r->path = argv[*at];
  } else {
    return false;
  }
  return true;
}
