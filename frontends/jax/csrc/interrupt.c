/* interrupt.c: Ctrl-C while a program runs. If the process is Python's, waits look for signals whose handlers raise, as
 * Python does between two instructions: the work that waits is cancelled, and the signal comes again when the call has
 * returned its failure. Other processes have no such functions, and no interrupts. Nor can they call a function between
 * their last use of the plug-in and exit().
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "plugin.h"

typedef struct python {
  int (*is_initialized)(void);
  int (*ensure)(void);
  void (*release)(int state);
  int (*check_signals)(void);
  void (*clear)(void);
  void (*set_interrupt)(void);
} python;

static python find_python(void) {
  python p = {.is_initialized = (int (*)(void))dlsym(RTLD_DEFAULT, "Py_IsInitialized"),
              .ensure = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Ensure"),
              .release = (void (*)(int))dlsym(RTLD_DEFAULT, "PyGILState_Release"),
              .check_signals = (int (*)(void))dlsym(RTLD_DEFAULT, "PyErr_CheckSignals"),
              .clear = (void (*)(void))dlsym(RTLD_DEFAULT, "PyErr_Clear"),
              .set_interrupt = (void (*)(void))dlsym(RTLD_DEFAULT, "PyErr_SetInterrupt")};
  return p;
}

/* Python runs handlers on its main thread alone: others find no signal. */
bool hrj_wants_interrupt(void *arg) {
  const python p = find_python();
  bool wants = false;
  (void)arg;
  if (p.is_initialized == NULL || p.ensure == NULL || p.release == NULL || p.check_signals == NULL || p.clear == NULL ||
      p.set_interrupt == NULL || !p.is_initialized()) {
    return false;
  }
  int state = p.ensure();
  if (p.check_signals() != 0) {
    p.clear();
    p.set_interrupt();
    wants = true;
  }
  p.release(state);
  return wants;
}

bool hrj_call_at_exit(void (*function)(void)) {
  int (*at_exit)(void (*)(void)) = (int (*)(void (*)(void)))dlsym(RTLD_DEFAULT, "Py_AtExit");
  const python p = find_python();
  if (at_exit == NULL || p.is_initialized == NULL || p.ensure == NULL || p.release == NULL || !p.is_initialized()) {
    return false;
  }
  int state = p.ensure();
  bool is_registered = at_exit(function) == 0;
  p.release(state);
  return is_registered;
}
