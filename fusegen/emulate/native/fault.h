// Errors of a launch: the report that Python reads, and the signals that a stray access raises.
#pragma once

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>

#include "emulate_types.h"

namespace fusegen::emulate {

// fusegen/emulate/library.py declares the same structure.
struct Report {
  char text[512];               // empty: no error
  std::uint64_t kernel_offset;  // of the kernel in its library, whose debug information has its name
  std::uint64_t code_offset;    // of the instruction that raised a signal, or 0
  std::uint64_t address;        // that it could not access, when is_global
  std::int32_t is_global;
  std::int32_t has_thread;
  std::uint32_t block[3];
  std::uint32_t thread[3];
};

// Leaves a launch from wherever one of its threads is. Kernels own nothing that needs a destructor.
class Faults {
 public:
  using Describe = void (*)(int signal, void* address, bool write);

  sigjmp_buf escape;

  // From here to leave(), signals call describe, which must not return.
  void enter(Describe describe) {
    describe_ = describe;
    owner_ = pthread_self();
    stack_t alternate = {};
    alternate.ss_sp = stack_;  // the fault may be the overflow of the current stack
    alternate.ss_size = sizeof stack_;
    sigaltstack(&alternate, &previous_stack_);
    struct sigaction action = {};
    action.sa_sigaction = [](int number, siginfo_t* info, void* context) {
      active->handle(number, info, context);
    };
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    active = this;
    for (int i = 0; i < count; ++i) sigaction(signals[i], &action, &previous_[i]);
  }

  void leave() {
    for (int i = 0; i < count; ++i) sigaction(signals[i], &previous_[i], nullptr);
    sigaltstack(&previous_stack_, nullptr);
  }

  // The instruction that raised the signal, for describe.
  std::uint64_t code_address() const { return code_address_; }

 private:
  static constexpr int count = 4;
  static constexpr int signals[count] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
  static inline Faults* active = nullptr;

  void handle(int number, siginfo_t* info, void* context) {
    if (!pthread_equal(pthread_self(), owner_)) {  // not ours: it happens again, under the previous handler
      for (int i = 0; i < count; ++i) {
        if (signals[i] == number) sigaction(number, &previous_[i], nullptr);
      }
      return;
    }
    bool write = false;
#if defined(__x86_64__)
    const auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    code_address_ = static_cast<std::uint64_t>(registers[REG_RIP]);
    write = (registers[REG_ERR] & 2) != 0;
#elif defined(__aarch64__)
    code_address_ = static_cast<ucontext_t*>(context)->uc_mcontext.pc;
#endif
    describe_(number, info->si_addr, write);
  }

  Describe describe_ = nullptr;
  pthread_t owner_ = {};
  std::uint64_t code_address_ = 0;
  stack_t previous_stack_ = {};
  struct sigaction previous_[count] = {};
  alignas(16) unsigned char stack_[64 * 1024];
};

// Where an address lies in the library that holds it; base receives the library's start.
inline std::uint64_t offset_in_library(const void* address, void** base) {
  Dl_info info = {};
  *base = nullptr;
  if (!address || !dladdr(address, &info)) return 0;
  *base = info.dli_fbase;
  return reinterpret_cast<std::uint64_t>(address) - reinterpret_cast<std::uint64_t>(info.dli_fbase);
}

}  // namespace fusegen::emulate
