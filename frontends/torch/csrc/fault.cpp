// fault.cpp: a message for code that dereferences a tensor's handle.
//
// tensor.data_ptr() of the device is an address that maps nothing. Code that reads it ends in a segmentation fault; the
// handler here prints what the address belongs to and what to call instead. Then the former handler has its turn, such
// as Python's faulthandler, or the process ends as it would have. Faults at other addresses go to the former handler at
// once.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "device.h"

namespace headrace {
namespace {

struct sigaction former;

// Calls nothing that locks.
void print_message(const void *address) {
  char what[160], text[640];
  if (!hr_handle_describe(address, sizeof what, what))
    return;
  int length = std::snprintf(
      text, sizeof text,
      "headrace: the data_ptr() of a tensor was dereferenced, at %p: %s.\n"
      "A tensor of the device has no memory at its data_ptr(). In C++ use headrace::call or headrace::address "
      "(headrace/torch.h); in Python tensor.cpu() or torch.headrace.host_view(tensor).\n",
      address, what);
  (void)!write(STDERR_FILENO, text, static_cast<size_t>(length));
}

void handle(int signal, siginfo_t *info, void *context) {
  print_message(info->si_addr);
  if ((former.sa_flags & SA_SIGINFO) != 0 && former.sa_sigaction != nullptr) {
    former.sa_sigaction(signal, info, context);
  } else if (former.sa_handler != SIG_DFL && former.sa_handler != SIG_IGN) {
    former.sa_handler(signal);
  } else {
    struct sigaction plain {};
    plain.sa_handler = SIG_DFL; // the instruction runs again, and ends the process
    sigaction(signal, &plain, nullptr);
  }
}

} // namespace

void explain_faults() {
  struct sigaction own {};
  own.sa_sigaction = &handle;
  own.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &own, &former);
}

} // namespace headrace
