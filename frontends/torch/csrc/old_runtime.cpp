// old_runtime.cpp: what this compiler's C++ headers call and older runtimes lack, so that the library loads wherever
// torch does. Compiled into wheels alone (HEADRACE_GLIBC); torch needs nothing newer than GLIBCXX_3.4.22 and
// CXXABI_1.3.11. scripts/check_wheel.py names what is missing here.
//
//   missing there                                 since               here
//   __libc_single_threaded                        glibc 2.32          "there may be threads"
//   std::__throw_bad_array_new_length             GLIBCXX_3.4.29      throws
//   std::ostringstream::ostringstream()           GLIBCXX_3.4.26      instantiated here
//   std::stringbuf::str() const &, &&             GLIBCXX_3.4.29      instantiated here
//   exception_ptr::_M_addref, _M_release          CXXABI_1.3.13       by copies, which older runtimes export

// Templates that the headers declare as part of the runtime are instantiated where they are used, in this file.
#define _GLIBCXX_EXTERN_TEMPLATE 0
#include <exception>
#include <new>
#include <sstream>

// The names stay inside this library.
__asm__(".hidden __libc_single_threaded\n"
        ".hidden _ZSt28__throw_bad_array_new_lengthv\n"
        ".hidden _ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEC1Ev\n"
        ".hidden _ZNKRSt7__cxx1115basic_stringbufIcSt11char_traitsIcESaIcEE3strEv\n"
        ".hidden _ZNOSt7__cxx1115basic_stringbufIcSt11char_traitsIcESaIcEE3strEv\n"
        ".hidden _ZNSt15__exception_ptr13exception_ptr9_M_addrefEv\n"
        ".hidden _ZNSt15__exception_ptr13exception_ptr10_M_releaseEv\n");

extern "C" {
extern char __libc_single_threaded;
char __libc_single_threaded = 0;
}

void std::__throw_bad_array_new_length() {
  throw bad_array_new_length();
}

template std::ostringstream::basic_ostringstream();
template std::string std::stringbuf::str() const &;
template std::string std::stringbuf::str() &&;

// A pointer to an exception is one word, which its copy constructor counts and its destructor counts down.
extern "C" {
void copy_exception(void *to, const void *from) __asm__("_ZNSt15__exception_ptr13exception_ptrC1ERKS0_");
void drop_exception(void *from) __asm__("_ZNSt15__exception_ptr13exception_ptrD1Ev");
void add_reference(void *self) __asm__("_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv");
void release(void *self) __asm__("_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");
}

void add_reference(void *self) {
  void *copy = nullptr;
  copy_exception(&copy, self); // stays counted
}

void release(void *self) {
  void *taken = *static_cast<void **>(self);
  *static_cast<void **>(self) = nullptr;
  if (taken != nullptr)
    drop_exception(&taken);
}
