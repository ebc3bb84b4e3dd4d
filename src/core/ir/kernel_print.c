/* Prints a kernel as text:
 *
 *   kernel sub_exp_sum dims [64, 1000] reduce {1} order lanes phases 3
 *     arg 0 %4 read
 *     phase 0
 *       r0:f32 = load a0:f32+0{1000,1}
 *       r1:f32 row = reduce amax r0
 *     phase 1
 *       ...
 */
#include "core/ir/kernel.h"

#include "core/ops/op.h"

static void print_numbers(hr_text *text, const int64_t *numbers, int count, const char *open, const char *close) {
  hr_text_append(text, open);
  for (int i = 0; i < count; ++i) {
    hr_text_printf(text, "%s%lld", i > 0 ? "," : "", (long long)numbers[i]);
  }
  hr_text_append(text, close);
}

static void print_mask(hr_text *text, const char *name, uint32_t mask) {
  if (mask == 0) {
    return;
  }
  hr_text_printf(text, " %s {", name);
  const char *separator = "";
  for (int d = 0; d < 32; ++d) {
    if ((mask >> d & 1) != 0) {
      hr_text_printf(text, "%s%d", separator, d);
      separator = ",";
    }
  }
  hr_text_append(text, "}");
}

static void print_access(const hr_kernel *kernel, int index, hr_text *text) {
  if (index < 0 || index >= kernel->access_count) {
    hr_text_append(text, " ?");
    return;
  }
  const hr_access *access = &kernel->accesses[index];
  if (access->arg >= 0) {
    hr_text_printf(text, " a%d:%s", access->arg, hr_dtype_name(access->dtype));
  } else {
    hr_text_append(text, " ");
  }
  hr_text_printf(text, "%+lld", (long long)access->offset);
  print_numbers(text, access->strides, kernel->rank, "{", "}");
  for (int t = 0; t < access->term_count; ++t) {
    const hr_kernel_term *term = &access->terms[t];
    hr_text_printf(text, " [r%d*%lld<%lld]", term->reg, (long long)term->stride, (long long)term->extent);
  }
  for (int b = 0; b < access->bound_count; ++b) {
    const hr_bound *bound = &access->bounds[b];
    hr_text_printf(text, " if %+lld", (long long)bound->offset);
    print_numbers(text, bound->strides, kernel->rank, "{", "}");
    hr_text_printf(text, "<%lld", (long long)bound->extent);
  }
  if (access->fill >= 0) {
    hr_text_printf(text, " else $%d", access->fill);
  }
}

static void print_instr(const hr_kernel *kernel, const hr_instr *instr, hr_text *text) {
  static const char *const kinds[] = {"load", "index", "", "convert", "reduce ", "argreduce ", "store"};
  static const char *const modes[] = {"", " add", " mul", " max", " min"};
  bool is_op = instr->kind == HR_INSTR_COMPUTE || instr->kind == HR_INSTR_REDUCE || instr->kind == HR_INSTR_ARGREDUCE;
  hr_text_append(text, "    ");
  if (instr->dst >= 0 && instr->dst < kernel->register_count) {
    const hr_register *reg = &kernel->registers[instr->dst];
    hr_text_printf(text, "r%d:%s%s = ", instr->dst, hr_class_name(reg->cls), reg->level == HR_LEVEL_ROW ? " row" : "");
  }
  hr_text_append(text, (unsigned)instr->kind < 7 ? kinds[instr->kind] : "?");
  if (is_op) {
    hr_text_append(text, hr_op_table(instr->op)->name);
    hr_text_printf(text, ".%s", hr_class_name(instr->cls));
  }
  if (instr->kind == HR_INSTR_STORE && instr->level == HR_LEVEL_ROW) {
    hr_text_append(text, " row");
  }
  if (instr->kind == HR_INSTR_STORE && (unsigned)instr->mode < 5) {
    hr_text_append(text, modes[instr->mode]);
  }
  if (instr->access >= 0) {
    print_access(kernel, instr->access, text);
  }
  for (int s = 0; s < instr->source_count; ++s) {
    const hr_source *source = &instr->sources[s];
    hr_text_append(text, s > 0 || instr->access >= 0 ? ", " : " ");
    hr_text_printf(text, "%s%d",
                   source->kind == HR_SOURCE_SCALAR     ? "$"
                   : source->kind == HR_SOURCE_REGISTER ? "r"
                                                        : "?",
                   source->index);
  }
  if (instr->kind == HR_INSTR_CONVERT) {
    hr_text_printf(text, " to %s", hr_dtype_name(instr->to));
  }
  hr_text_append(text, "\n");
}

hr_status hr_kernel_print(const hr_kernel *kernel, hr_text *out_text) {
  static const char *const orders[] = {"none", "sequential", "lanes"};
  hr_text_printf(out_text, "kernel %s dims ", kernel->name != NULL ? kernel->name : "");
  print_numbers(out_text, kernel->dims, kernel->rank, "[", "]");
  print_mask(out_text, "reduce", kernel->reduce_mask);
  print_mask(out_text, "ordered", kernel->ordered_mask);
  hr_text_printf(out_text, " order %s phases %d%s\n", (unsigned)kernel->order < 3 ? orders[kernel->order] : "?",
                 kernel->phase_count, kernel->is_repeated ? " repeated" : "");
  for (int a = 0; a < kernel->arg_count; ++a) {
    const hr_kernel_arg *arg = &kernel->args[a];
    hr_text_printf(out_text, "  arg %d %%%u%s%s\n", a, arg->buffer, arg->is_read ? " read" : "",
                   arg->is_written ? " written" : "");
  }
  int phase = -1;
  for (int k = 0; k < kernel->instr_count; ++k) {
    if (kernel->instrs[k].phase != phase) {
      phase = kernel->instrs[k].phase;
      hr_text_printf(out_text, "  phase %d\n", phase);
    }
    print_instr(kernel, &kernel->instrs[k], out_text);
  }
  return hr_text_status(out_text);
}
