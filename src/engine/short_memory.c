#include "engine/short_memory.h"

#include "base/text.h"
#include "core/ir/dtype.h"
#include "core/ir/traffic.h"
#include "engine/profile.h"
#include "engine/record_note.h"

/* The output that the failure is about, and its node; NULL: none is known. */
typedef struct origin {
  const hr_node *node;
  const hr_operand *output;
} origin;

/* The operation that writes the buffer first gives it its memory. */
static origin find_writer(const hr_program *program, size_t local) {
  for (int n = 0; n < program->node_count; ++n) {
    const hr_node *node = &program->nodes[n];
    for (int k = 0; k < node->output_count; ++k) {
      if (node->outputs[k].kind == HR_OPERAND_VALUE && node->outputs[k].index == local) {
        return (origin){node, &node->outputs[k]};
      }
    }
  }
  return (origin){NULL, NULL};
}

/* True if this output comes before the largest one until now: of equal ones, copies are named last. */
static bool is_larger(const hr_operand *output, const origin *largest) {
  int64_t bytes = hr_operand_bytes(output), most = largest->output != NULL ? hr_operand_bytes(largest->output) : -1;
  return bytes > most || (bytes == most && largest->node->op == HR_OP_COPY);
}

/* The largest output, of those in the arena if there are some. */
static origin find_largest(const hr_program *program, const hr_plan *plan) {
  origin largest = {NULL, NULL};
  bool is_temporary = false;
  for (int n = 0; n < program->node_count; ++n) {
    const hr_node *node = &program->nodes[n];
    for (int k = 0; k < node->output_count; ++k) {
      const hr_operand *output = &node->outputs[k];
      if (output->kind != HR_OPERAND_VALUE) {
        continue;
      }
      bool is_in_arena = hr__plan_place(plan, output->index) == HR_PLACE_ARENA;
      if (is_in_arena == is_temporary ? is_larger(output, &largest) : is_in_arena) {
        largest = (origin){node, output};
        is_temporary = is_in_arena;
      }
    }
  }
  return largest;
}

static void write_place(const hr_trace *trace, const hr_node *node, hr_text *text) {
  hr_text place = {0};
  if (node->origin < trace->marks.count) {
    hr__records_place(trace->marks.data[node->origin].correlation, &place);
  }
  hr_text_printf(text, "%s%s", place.length > 0 ? ", " : "", hr_text_chars(&place));
  hr_text_fini(&place);
}

static hr_status name(const hr_trace *trace, const char *what, const origin *from, hr_status status) {
  hr_text text = {0};
  hr_text_printf(&text, "%s %s", what, hr_dtype_name(from->output->dtype));
  hr__print_list(&text, "[", from->output->rank, from->output->dims, "]");
  hr_text_printf(&text, " of %s", hr__node_name(from->node));
  write_place(trace, from->node, &text);
  hr_status named = text.failed ? status : hr_status_annotate(status, "%s", hr_text_chars(&text));
  hr_text_fini(&text);
  return named;
}

hr_status hr__short_memory_name(const hr_trace *trace, const hr_key *key, const hr_plan *plan, int64_t local,
                                hr_status status) {
  hr_program program;
  hr_status decoded = hr__key_decode(key, &program);
  if (decoded != HR_OK) {
    hr_status_ignore(decoded);
    return status;
  }
  bool is_result = local != HR_SHORT_OF_TEMPORARIES;
  origin from = is_result ? find_writer(&program, (size_t)local) : find_largest(&program, plan);
  if (from.node != NULL) {
    status = name(trace, is_result ? "the result" : "temporaries, the largest", &from, status);
  }
  hr_program_fini(&program);
  return status;
}
