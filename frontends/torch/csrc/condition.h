// condition.h: a condition that threads wait for, under a mutex.
//
// The waits of std::condition_variable need GLIBCXX_3.4.30 and glibc 2.30 if GCC 12 or later compiles them; the wheel
// is for older systems (scripts/check_wheel.py).
#pragma once

#include <pthread.h>

#include <chrono>
#include <mutex>

namespace headrace {

class Condition {
public:
  Condition() {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&condition_, &attributes);
    pthread_condattr_destroy(&attributes);
  }
  ~Condition() {
    pthread_cond_destroy(&condition_);
  }
  Condition(const Condition &) = delete;
  Condition &operator=(const Condition &) = delete;

  void notify_all() {
    pthread_cond_broadcast(&condition_);
  }
  // The lock is held while `is_true` is called.
  template <typename Predicate> void wait(std::unique_lock<std::mutex> &lock, Predicate is_true) {
    while (!is_true())
      pthread_cond_wait(&condition_, lock.mutex()->native_handle());
  }
  // False: the time is over, and `is_true` is not.
  template <typename Predicate>
  bool wait_for(std::unique_lock<std::mutex> &lock, std::chrono::milliseconds time, Predicate is_true) {
    timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += time.count() / 1000;
    end.tv_nsec += time.count() % 1000 * 1000000;
    if (end.tv_nsec >= 1000000000)
      end.tv_sec += 1, end.tv_nsec -= 1000000000;
    bool is_over = false;
    while (!is_true() && !is_over)
      is_over = pthread_cond_timedwait(&condition_, lock.mutex()->native_handle(), &end) != 0;
    return is_true();
  }

private:
  pthread_cond_t condition_;
};

} // namespace headrace
