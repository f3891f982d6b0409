// Switching between fibres, and the memory of their stacks.
//
// A switch happens at every barrier and shuffle of every emulated thread. swapcontext() would make a system
// call each time to save the signal mask, which fibres never change; on x86-64 a few instructions do instead.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__) && !defined(FUSEGEN_FIBRE_UCONTEXT)
#define FUSEGEN_FIBRE_UCONTEXT
#endif

#if defined(FUSEGEN_FIBRE_UCONTEXT)
#include <ucontext.h>
#endif

namespace fusegen::emulate {

#if defined(FUSEGEN_FIBRE_UCONTEXT)

struct Fibre {
  ucontext_t context;
};

inline void prepare_fibre(Fibre& fibre, unsigned char* stack, std::size_t bytes, void (*entry)()) {
  getcontext(&fibre.context);
  fibre.context.uc_stack.ss_sp = stack;
  fibre.context.uc_stack.ss_size = bytes;
  fibre.context.uc_link = nullptr;
  makecontext(&fibre.context, entry, 0);
}

inline void switch_fibre(Fibre& from, Fibre& to) { swapcontext(&from.context, &to.context); }

#else

struct Fibre {
  void* stack_pointer;
};

// Saves what the calling convention says a function preserves, then continues on the other stack.
extern "C" void fusegen_emulate_switch(void** from, void* to) __attribute__((visibility("hidden")));
asm(R"(
.text
.hidden fusegen_emulate_switch
.globl fusegen_emulate_switch
.type fusegen_emulate_switch, @function
fusegen_emulate_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size fusegen_emulate_switch, .-fusegen_emulate_switch
)");

// Lays out what the first switch to this fibre pops: six registers and entry as the return address. Above it
// a zero return address for entry itself, which also aligns the stack as at any function's entry.
inline void prepare_fibre(Fibre& fibre, unsigned char* stack, std::size_t bytes, void (*entry)()) {
  void** top = reinterpret_cast<void**>(stack + bytes);
  top[-1] = nullptr;
  top[-2] = reinterpret_cast<void*>(entry);
  for (int i = 3; i <= 8; ++i) top[-i] = nullptr;
  fibre.stack_pointer = top - 8;
}

inline void switch_fibre(Fibre& from, Fibre& to) {
  fusegen_emulate_switch(&from.stack_pointer, to.stack_pointer);
}

#endif

// Stacks with a guard page below each, kept for the life of the process.
class Stacks {
 public:
  static constexpr std::size_t bytes = 64 * 1024;

  // Grows to at least count stacks; the earlier ones must not be in use, for they may move.
  bool reserve(unsigned count) {
    if (count <= count_) return true;
    release();
    page_ = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* memory = mmap(nullptr, count * stride(), PROT_NONE, flags, -1, 0);
    if (memory == MAP_FAILED) return false;
    base_ = static_cast<unsigned char*>(memory);
    count_ = count;
    for (unsigned i = 0; i < count; ++i) {
      if (mprotect(base_ + i * stride() + page_, bytes, PROT_READ | PROT_WRITE) != 0) {
        release();
        return false;
      }
    }
    return true;
  }

  // Gives back more stacks than are kept from launch to launch. Each takes two of the mappings that a process may
  // have, by default 65530, and emulated libraries stay loaded.
  void trim() {
    if (count_ > 256) release();
  }

  unsigned char* stack(unsigned i) const { return base_ + i * stride() + page_; }

  // Stacks lie whole pages apart, so their tops would all compete for the same few lines of the cache.
  static std::size_t usable(unsigned i) { return bytes - i % 16 * 256; }

  bool contains(const void* address) const {
    return base_ && address >= base_ && address < base_ + count_ * stride();
  }

 private:
  void release() {
    if (base_) munmap(base_, count_ * stride());
    base_ = nullptr;
    count_ = 0;
  }

  std::size_t stride() const { return page_ + bytes; }

  unsigned char* base_ = nullptr;
  unsigned count_ = 0;
  std::size_t page_ = 0;
};

}  // namespace fusegen::emulate
