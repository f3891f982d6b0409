// What a launcher would do, and why, as text for `fusegen plan`, benchmarks and tunings.
#pragma once

#include <cstdint>
#include <cstdio>

#include <cuda_runtime.h>

namespace fusegen {

// Collects lines of JSON text: one for each schedule that was considered, one for each launch. Text
// beyond `size` is counted, but dropped.
class Explanation {
 public:
  Explanation(char* text, int64_t size) : text_(text), size_(size) {}

  // microseconds: an estimate, of which only the order matters; negative where there is none.
  void considered(const char* schedule, bool chosen, const char* reason, double microseconds = -1) {
    char estimate[48] = "";
    if (microseconds >= 0) {
      std::snprintf(estimate, sizeof(estimate), ", \"estimate\": %.1f", microseconds);
    }
    char line[512];
    std::snprintf(
        line, sizeof(line), "{\"considered\": \"%s\", \"chosen\": %s, \"reason\": \"%s\"%s}\n",
        schedule, chosen ? "true" : "false", reason, estimate);
    add(line);
  }

  // The kernel of the next launch, and the passes that it does.
  void next(const char* kernel, int first_pass, int last_pass) {
    kernel_ = kernel;
    first_ = first_pass;
    last_ = last_pass;
  }
  void launched(dim3 grid, dim3 block, size_t shared_bytes) {
    char line[512];
    std::snprintf(
        line, sizeof(line),
        "{\"kernel\": \"%s\", \"passes\": [%d, %d], \"grid\": [%u, %u, %u], "
        "\"block\": [%u, %u, %u], \"shared_bytes\": %lld}\n",
        kernel_, first_, last_, grid.x, grid.y, grid.z, block.x, block.y, block.z,
        static_cast<long long>(shared_bytes));
    add(line);
  }

  // Of all text, with its end.
  int64_t bytes() const { return bytes_ + 1; }

 private:
  void add(const char* line) {
    for (; *line != 0; ++line, ++bytes_) {
      if (bytes_ + 1 < size_) text_[bytes_] = *line;
    }
    if (size_ > 0) text_[bytes_ < size_ ? bytes_ : size_ - 1] = 0;
  }

  char* text_;
  int64_t size_;
  int64_t bytes_ = 0;
  const char* kernel_ = "";
  int first_ = 0, last_ = 0;
};

// Where the launches of this thread are written instead of being made; null: they are made.
inline thread_local Explanation* explanation = nullptr;

}  // namespace fusegen
