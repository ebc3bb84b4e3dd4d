/* call_thread.h: a thread that runs what must not run on the thread of a stream's work.
 *
 * Callbacks of events use buffers: jaxlib 0.11 wants the address of one that is ready, for which the stream is waited
 * for. There is one thread for the process, from the first call on. A forked child has one of its own.
 */
#ifndef HEADRACE_JAX_CALL_THREAD_H_
#define HEADRACE_JAX_CALL_THREAD_H_

/* Calls function(arg) on the thread, after those that were posted before; on this one if there is no memory. */
void hrj_call_later(void (*function)(void *arg), void *arg);

#endif
