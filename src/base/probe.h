/* probe.h: places where tracers (bpftrace, perf, gdb, SystemTap) can stop or count a running process.
 *
 *   HR_PROBE2(copy, direction, bytes);
 *
 * A probe is one `nop`, and a note of the format of SystemTap's sdt.h, version 3, in the section .note.stapsdt. A
 * tracer replaces the `nop` by a breakpoint, and finds the values of the arguments by the note. Arguments are 8 bytes:
 * pointers or int64_t; they are computed whether or not a tracer is there, so pass what is at hand.
 *
 *   readelf -n libheadrace.so      perf list sdt_headrace:*      bpftrace -e 'usdt:./libheadrace.so:headrace:commit
 * ...'
 *
 * The probes are listed in docs/tools.md. On other machines than Linux x86-64 and AArch64, or with
 * -DHEADRACE_NO_PROBES, which is for measuring their cost, they are nothing.
 */
#ifndef HEADRACE_BASE_PROBE_H_
#define HEADRACE_BASE_PROBE_H_

#include <stdint.h>

#if !defined(HEADRACE_NO_PROBES) && defined(__linux__) && defined(__LP64__) && \
    (defined(__x86_64__) || defined(__aarch64__))
/* The tracer subtracts the base's address in the note from its address in memory, in case the library was prelinked. */
#define HR__PROBE_TEXT(name, arguments)                                                                \
  "990: nop\n"                                                                                         \
  ".pushsection .note.stapsdt,\"\",\"note\"\n.balign 4\n.4byte 992f-991f, 994f-993f, 3\n"              \
  "991: .asciz \"stapsdt\"\n992: .balign 4\n993: .8byte 990b\n.8byte _.stapsdt.base\n.8byte 0\n"       \
  ".asciz \"headrace\"\n.asciz \"" #name "\"\n.asciz \"" arguments "\"\n994: .balign 4\n.popsection\n" \
  ".ifndef _.stapsdt.base\n.pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"      \
  ".weak _.stapsdt.base\n.hidden _.stapsdt.base\n_.stapsdt.base: .space 1\n.size _.stapsdt.base, 1\n"  \
  ".popsection\n.endif\n"
#define HR_PROBE2(name, a, b) \
  __asm__ __volatile__(HR__PROBE_TEXT(name, "8@%0 -8@%1") : : "r"((uint64_t)(uintptr_t)(a)), "r"((int64_t)(b)))
#else
#define HR_PROBE2(name, a, b) ((void)(a), (void)(b))
#endif

#endif
