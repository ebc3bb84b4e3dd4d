/* machine.h: what this machine can do at most, to compare kernels with.
 *
 * Measured once in a process, in some tens of milliseconds, when a profile first asks: the bandwidth of reading memory
 * that lies in no cache, and the rate of float32 multiply-adds in registers, both with the whole thread team. A
 * neighbour on the same machine makes both smaller. Nothing but profiles depends on it.
 */
#ifndef HEADRACE_ENGINE_MACHINE_H_
#define HEADRACE_ENGINE_MACHINE_H_

typedef struct hr_machine {
  double read_gbs, peak_gflops; /* 1e9 bytes, or operations, a second; 0 where it could not be measured */
} hr_machine;

/* Logs what it measured at level 2 the first time. Threads: any; call it where parallel loops may run. */
const hr_machine *hr__machine(void);

#endif
