#include "base/fork.h"

#include "base/allocator.h"
#include "base/context.h"
#include "base/team.h"

void hr__fork_begin(void) {
  hr__contexts_begin_fork();
  hr__parallel_begin_fork();
  hr__allocator_begin_fork();
}

void hr__fork_end(void) {
  hr__allocator_end_fork();
  hr__contexts_end_fork(false);
}

void hr__fork_end_in_child(void) {
  hr__allocator_end_fork();
  hr__team_forget();
  hr__contexts_end_fork(true);
}
