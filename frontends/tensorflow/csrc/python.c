/* python.c: changes of TensorFlow's Python code, which modules of the Python package make: functions request no XLA
 * (jit.py), calls of functions are shorter (calls.py), tensors are copied through copies.c (copies.py), eager steps of
 * Keras are functions (eager_keras.py), scaled losses need no reads (scaled_loss.py), memory is reported (memory.py).
 *
 * A process without Python needs none of them. Without the package there is one warning.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "plugin.h"

/* Runs the modules without their package, which the program may import for its functions. */
static const char run_modules[] =
    "def _headrace():\n"
    "    import importlib.util, runpy, warnings\n"
    "    package = importlib.util.find_spec('headrace_tensorflow')\n"
    "    devices = ('', None, '/job:localhost/replica:0/task:0/device:HEADRACE:0')\n"
    "    changes = (\n"
    "        ('jit', 'ignore_jit_compile', (), 'functions that ask for XLA fail'),\n"
    "        ('copies', 'copy_directly', (%llu, %llu), 'tensors are copied through threads of TensorFlow'),\n"
    "        ('calls', 'shorten_calls', (%llu, %llu, devices), 'calls of functions take longer'),\n"
    "        ('memory', 'report_memory', (%llu, %llu), 'get_memory_info is 0'),\n"
    "        ('scaled_loss', 'select_updates', (), 'steps of scaled losses wait for the device'),\n"
    "        ('eager_keras', 'shorten_keras', (devices,), 'eager steps of Keras take longer'),\n"
    "    )\n"
    "    if package is None:\n"
    "        without = ', '.join(change[-1] for change in changes)\n"
    "        warnings.warn(f'headrace: the Python package headrace_tensorflow is missing: {without}')\n"
    "        return\n"
    "    for name, change, arguments, without in changes:\n"
    "        try:\n"
    "            folder = package.submodule_search_locations[0]\n"
    "            runpy.run_path(f'{folder}/{name}.py')[change](*arguments)\n"
    "        except (AttributeError, ImportError, OSError, ValueError) as error:\n"
    "            warnings.warn(f'headrace: {without}: {error}')\n"
    "_headrace()\n"
    "del _headrace\n";

static void change_python(void) {
  int (*is_initialized)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "Py_IsInitialized");
  int (*ensure)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
  void (*release)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "PyGILState_Release");
  int (*run)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "PyRun_SimpleString");
  if (is_initialized != NULL && ensure != NULL && release != NULL && run != NULL && is_initialized()) {
    char text[sizeof run_modules + 128];
    snprintf(text, sizeof text, run_modules, (unsigned long long)(uintptr_t)headrace_tensorflow_read,
             (unsigned long long)(uintptr_t)headrace_tensorflow_write,
             (unsigned long long)(uintptr_t)headrace_tensorflow_watch,
             (unsigned long long)(uintptr_t)headrace_tensorflow_find,
             (unsigned long long)(uintptr_t)headrace_tensorflow_memory_stats,
             (unsigned long long)(uintptr_t)headrace_tensorflow_reset_peak);
    int state = ensure();
    (void)run(text);
    release(state);
  }
}

void htf_change_python(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  (void)pthread_once(&once, change_python);
}
