// The buffers of global memory that a call of a launcher was given.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "shadow.h"

namespace fusegen::emulate {

// A buffer: its pages from open to close, and the data in them. fusegen/emulate/library.py declares the same.
struct Watched {
  std::uint64_t open;
  std::uint64_t close;
  std::uint64_t data;
  std::uint64_t bytes;
  std::uint32_t granule;   // bytes of the smallest element
  std::uint32_t poisoned;  // whether every byte was poison_byte, so that whoever still finds that reads too early
};

struct Region {
  const unsigned char* open;
  const unsigned char* close;
  const unsigned char* data;
  std::size_t bytes;
  bool poisoned;
  Shadow shadow;
};

class Regions {
 public:
  void watch(const Watched* watched, std::size_t count) {
    regions_.clear();
    const auto pointer = [](std::uint64_t address) { return reinterpret_cast<const unsigned char*>(address); };
    for (std::size_t i = 0; i < count; ++i) {
      const Watched& each = watched[i];
      Region region{pointer(each.open), pointer(each.close), pointer(each.data), each.bytes, each.poisoned != 0, {}};
      if (region.shadow.reserve(each.bytes, each.granule)) regions_.push_back(std::move(region));
    }
    std::sort(regions_.begin(), regions_.end(), [](auto& a, auto& b) { return a.open < b.open; });
  }

  Region* find(const unsigned char* address) {
    const auto after = std::upper_bound(regions_.begin(), regions_.end(), address,
                                        [](auto* value, auto& region) { return value < region.open; });
    if (after == regions_.begin()) return nullptr;
    Region& region = *(after - 1);
    return address < region.close ? &region : nullptr;
  }

 private:
  std::vector<Region> regions_;
};

}  // namespace fusegen::emulate
