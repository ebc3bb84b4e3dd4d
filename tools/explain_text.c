/* explain_text.c: an explanation as lines of text. */
#include "explain.h"

void explain_bytes(int64_t bytes, hr_text *text) {
  static const char *const units[] = {"KB", "MB", "GB", "TB"};
  double value = (double)bytes;
  int unit = -1;
  while (value >= 999.95 && unit < 3) {
    value /= 1000;
    ++unit;
  }
  if (unit < 0) {
    hr_text_printf(text, "%lld B", (long long)bytes);
  } else {
    hr_text_printf(text, "%.1f %s", value, units[unit]);
  }
}

static void print_port(const explanation *e, const port *p, bool is_read, hr_text *text) {
  const buffer_info *buffer = &e->buffers.data[p->buffer];
  hr_text_printf(text, "    %-7s %%%-5d %-24s ", is_read ? "reads" : "writes", p->buffer, buffer->shape);
  hr_text bytes = {0};
  explain_bytes(p->bytes, &bytes);
  hr_text_printf(text, "%10s  ", hr_text_chars(&bytes));
  hr_text_fini(&bytes);
  if (is_read && p->other != NO_STEP) {
    hr_text_printf(text, "of step %d", p->other);
  } else if (is_read) {
    hr_text_append(text, "from before");
  } else if (buffer->home == HOME_ARENA) {
    hr_text_printf(text, "in the arena at %zu, last read by step %d", buffer->arena_offset, p->other);
  } else {
    hr_text_append(text, buffer->home == HOME_KEPT ? "stays, new memory" : "stays, in place");
  }
  hr_text_append(text, buffer->is_channels_last ? ", channels last\n" : "\n");
}

static void print_time(const explanation *e, const step_info *info, hr_text *text) {
  double bytes = (double)(info->cost->bytes_read + info->cost->bytes_written);
  hr_text_printf(text, "    %.1f us, %.1f %% of all; %.1f GB/s", info->us,
                 100 * info->us / (e->total_us > 0 ? e->total_us : 1), bytes * 1e-3 / (info->us > 0 ? info->us : 1));
  if (info->kind == KIND_LIBRARY && info->cost->flops > 0) {
    hr_text_printf(text, ", %.1f GFLOP/s", (double)info->cost->flops * 1e-3 / (info->us > 0 ? info->us : 1));
  }
  if (info->step->kind == HR_STEP_KERNEL) {
    hr_text_append(text, info->is_compiled ? ", compiled" : ", interpreted");
  }
  hr_text_char(text, '\n');
}

void explain_step(const explanation *e, int step, hr_text *text) {
  const step_info *info = &e->steps.data[step];
  const hr_step *source = hr__step_source(info->instance, info->step);
  hr_text_printf(text, "step %d: %s [%s]\n", step, info->label, kind_names[info->kind]);
  if (info->operations != NULL && info->operations[0] != '\0') {
    hr_text_printf(text, "    does    %s\n", info->operations);
  }
  if (info->places != NULL && info->places[0] != '\0') {
    hr_text_printf(text, "    of      %s\n", info->places);
  }
  if (source->kind == HR_STEP_KERNEL) {
    hr_text_printf(text, "    as      %d loop%s in %d phase%s\n", info->loop_count, info->loop_count == 1 ? "" : "s",
                   source->kernel->phase_count, source->kernel->phase_count == 1 ? "" : "s");
  }
  if (source->why != NULL) {
    hr_text_printf(text, "    apart   %s\n", source->why);
  }
  for (int p = 0; p < info->read_count; ++p) {
    print_port(e, &e->ports.data[info->first_read + p], true, text);
  }
  for (int p = 0; p < info->write_count; ++p) {
    print_port(e, &e->ports.data[info->first_write + p], false, text);
  }
  if (info->vanished_count > 0) {
    hr_text_printf(text, "    keeps   %d temporar%s in registers: ", info->vanished_count,
                   info->vanished_count == 1 ? "y" : "ies");
    explain_bytes(info->vanished_bytes, text);
    hr_text_append(text, " that never get memory\n");
  }
  if (e->repeat > 0) {
    print_time(e, info, text);
  }
}

void explain_text(const explanation *e, hr_text *text) {
  hr_text_printf(text,
                 "%s on %s: %d operations became %zu steps: %d library calls, %d fused loops, %d copies, %d checks\n",
                 e->replay->path, e->replay->device_name, e->record_count, e->steps.count, e->counts[KIND_LIBRARY],
                 e->counts[KIND_LOOP], e->counts[KIND_COPY], e->counts[KIND_CHECK]);
  hr_text_append(text, "a run reads ");
  explain_bytes(e->bytes_read, text);
  hr_text_append(text, " and writes ");
  explain_bytes(e->bytes_written, text);
  hr_text_printf(text, "; libraries compute %.3g GFLOP\n%d temporaries, ", (double)e->library_flops * 1e-9,
                 e->vanished_count);
  explain_bytes(e->vanished_bytes, text);
  hr_text_append(text, ", never get memory; the others share an arena of ");
  explain_bytes(e->arena_bytes, text);
  if (e->repeat > 0) {
    hr_text_printf(text, "\nmedian of %d runs: %.1f us in all steps", e->repeat, e->total_us);
  }
  hr_text_append(text, "\n");
  for (int s = 0; s < (int)e->steps.count; ++s) {
    hr_text_char(text, '\n');
    explain_step(e, s, text);
  }
}
