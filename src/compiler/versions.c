/* versions.c: stream order to value form.
 *
 *   before   %0 = add(%0, %1)          after   %0.1 = add(%0.0, %1.0)
 *            %0[0:4] = mul(%0[4:8], 2)         %0.2[0:4] = mul(%0.1[4:8], 2)
 *
 * A write makes a new version of the whole buffer, even if it covers only a part: the rest is the older version's, in
 * place. So version v + 1 needs version v in the buffer's memory unless it covers all of it.
 */
#include <string.h>

#include "compiler/passes.h"

void hr_versions_begin(hr_program *program) {
  for (int b = 0; b < program->buffer_count; ++b) {
    program->buffers[b].versions = 0;
  }
  program->is_value_form = true;
}

void hr_versions_add(hr_program *program, hr_node *node) {
  for (int i = 0; i < node->input_count; ++i) {
    hr_operand *input = &node->inputs[i];
    if (input->kind == HR_OPERAND_VALUE) {
      input->version = program->buffers[input->index].versions;
    }
  }
  for (int i = 0; i < node->output_count; ++i) {
    hr_operand *output = &node->outputs[i];
    if (output->kind == HR_OPERAND_VALUE) {
      output->version = ++program->buffers[output->index].versions;
    }
  }
}

void hr_versions(hr_program *program) {
  hr_versions_begin(program);
  for (int n = 0; n < program->node_count; ++n) {
    hr_versions_add(program, &program->nodes[n]);
  }
}
