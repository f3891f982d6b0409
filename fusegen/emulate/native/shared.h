// A block's shared memory: poisoned, and guarded at both ends.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fusegen::emulate {

// Repeated, a NaN in every floating-point type, and none that arithmetic or poison produces: a stray read
// shows in the result, a stray write in the canary.
constexpr std::uint16_t canary = 0xffa5;
constexpr int poison_byte = 0xff;

class SharedMemory {
 public:
  static constexpr std::size_t limit = 227 * 1024;  // what a block can have on sm_80 to sm_100 at most

  // Places the memory so that its end, rounded up to 16 bytes, meets an inaccessible page. Pages wholly below
  // it are inaccessible too; what remains in between holds the canary.
  bool place(std::size_t bytes) {
    if (!base_ && !map()) return false;
    data_ = end_ - (bytes + 15) / 16 * 16;
    bytes_ = bytes;
    unsigned char* open = base_ + static_cast<std::size_t>(data_ - base_) / page_ * page_;
    if (open != open_) {
      const auto closed = static_cast<std::size_t>(open - base_);
      const auto opened = static_cast<std::size_t>(end_ - open);
      if (closed && mprotect(base_, closed, PROT_NONE) != 0) return false;
      if (opened && mprotect(open, opened, PROT_READ | PROT_WRITE) != 0) return false;
      open_ = open;
    }
    fill_canary(open_, data_);
    return true;
  }

  void poison() {
    std::memset(data_, poison_byte, bytes_);
    fill_canary(data_ + bytes_, end_);
  }

  // The distance from the start of the memory to the first overwritten byte of canary, or nothing.
  bool damaged(std::ptrdiff_t* where) const {
    return differs(open_, data_, where) || differs(data_ + bytes_, end_, where);
  }

  bool contains(const void* address) const { return base_ && address >= base_ && address < end_ + page_; }
  unsigned char* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  bool map() {
    page_ = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    // One page more below than the limit needs, so that there is always room for a negative index to fault.
    const std::size_t size = (limit + page_ - 1) / page_ * page_ + page_;
    void* memory = mmap(nullptr, size + page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return false;
    base_ = static_cast<unsigned char*>(memory);
    end_ = open_ = base_ + size;
    return true;
  }

  // By the address and not by the distance from the data, so that an odd size keeps the pattern aligned.
  static unsigned char canary_byte(const unsigned char* at) {
    return static_cast<unsigned char>(reinterpret_cast<std::uintptr_t>(at) & 1 ? canary >> 8 : canary & 0xff);
  }
  static void fill_canary(unsigned char* from, unsigned char* to) {
    for (; from < to; ++from) *from = canary_byte(from);
  }
  bool differs(const unsigned char* from, const unsigned char* to, std::ptrdiff_t* where) const {
    for (; from < to; ++from) {
      if (*from == canary_byte(from)) continue;
      *where = from - data_;
      return true;
    }
    return false;
  }

  unsigned char* base_ = nullptr;
  unsigned char* open_ = nullptr;  // the first accessible byte
  unsigned char* data_ = nullptr;
  unsigned char* end_ = nullptr;  // the inaccessible page after the memory
  std::size_t bytes_ = 0;
  std::size_t page_ = 0;
};

}  // namespace fusegen::emulate
