// Launch shapes as pure functions of the sizes, and the workspace that kernels of one schedule
// share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include <cuda_runtime.h>

namespace fusegen {

// Hands out 256-byte aligned pieces of a workspace, which may be null where no piece is asked for.
// Made without a workspace it only counts the bytes.
class Scratch {
 public:
  Scratch() : measures_(true) {}
  explicit Scratch(void* workspace) : workspace_(static_cast<char*>(workspace)) {}

  template <typename T>
  T* take(int64_t count) {
    T* piece = measures_ ? nullptr : reinterpret_cast<T*>(workspace_ + bytes_);
    bytes_ += (count * int64_t(sizeof(T)) + 255) / 256 * 256;
    return piece;
  }

  // Whether this is only about the bytes: then nothing is launched.
  bool measures() const { return measures_; }
  int64_t bytes() const { return bytes_; }

 private:
  char* workspace_ = nullptr;
  int64_t bytes_ = 0;
  bool measures_ = false;
};

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline int power_of_two_from(int64_t n) {
  int power = 1;
  while (power < n) power *= 2;
  return power;
}

template <typename... Pointers>
bool aligned_to_16(Pointers... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

// Which of the tensors that a program is given begin at multiples of 16 bytes.
enum class Aligned {
  kNone,
  kElements,  // those that have rows and channels, at least
  kAll,
};

enum Schedule : int64_t {
  kAutomatic = 0,       // on chip where that fits well
  kOnChip = 1,          // in registers or in shared memory; an error where that does not fit
  kSplit = 2,           // fits every size
  kOnChipIfItFits = 3,  // else split
};

// What a launch leaves open: how much is in flight, never what is computed. fusegen/plan/shapes.py
// has the same fields, with the values that are measured and verified.
struct Shapes {
  int64_t schedule = kAutomatic;
  int64_t stream_blocks = 8;   // blocks a multiprocessor that a stream kernel is cut into
  int64_t row_items = 2;       // vectors of a long segment's thread, before its block grows to 512
  int64_t row_waves = 1;       // blocks of a row kernel for each that is resident
  int64_t row_share = 0;       // 1 the least of a segment for a thread, 2 twice that
  int64_t column_blocks = 2;   // blocks a multiprocessor that a column tile leaves room for
  int64_t column_cluster = 1;  // blocks that share a tile of columns, at least, if it is asked for
};

// How many rows follow each other until one begins at a multiple of a vector again, as the first
// does. A power of two, as `vector` is.
inline int row_period(int64_t channels, int vector) {
  while (vector > 1 && channels % 2 == 0) {
    channels /= 2;
    vector /= 2;
  }
  return vector;
}

// A launch over `lines` in which each thread keeps its columns and walks down some of them. A line
// is a row, or `period` of them where not each begins at a multiple of a vector.
struct Stream {
  dim3 grid;
  dim3 block;
  int64_t lines;
  int64_t lines_per_block;
  int period;
};

// Neighbouring vectors of a line that a block has: a warp's, if there are so many.
inline int stream_width(int64_t vectors) { return vectors < 32 ? power_of_two_from(vectors) : 32; }

// Rows of a line: a period, or a few where that leaves fewer threads without a vector.
inline int line_rows(int64_t channels, int vector, bool sums) {
  const int period = row_period(channels, vector);
  const auto used = [&](int periods) {  // of the threads
    const int64_t vectors = periods * period * channels / vector;
    const int width = stream_width(vectors);
    return double(vectors) / double(ceil_div(vectors, width) * width);
  };
  int best = 1;
  for (int periods = 2; !sums && periods <= 8 && used(best) < 0.8; ++periods) {
    if (used(periods) > used(best)) best = periods;
  }
  return best * period;
}

// Enough blocks to fill the device a few times over, and no block with fewer than 4 lines for each
// of its threads unless the lines run out: partial column sums stay small beside the data they are
// sums of. `sums`: whether there are any; a block has as many of a column as a line has rows.
inline Stream stream_shape(
    const Shapes& shapes, int64_t rows, int64_t channels, int vector, bool packed, bool sums,
    int multiprocessors) {
  constexpr int kThreads = 256;
  const int period = packed ? 1 : line_rows(channels, vector, sums);
  const int64_t lines = ceil_div(rows, period);
  const int64_t vectors = ceil_div(period * channels, vector);
  const int width = stream_width(vectors);
  int height = kThreads / width;
  while (height * width > 32 && height / 2 >= lines) height /= 2;
  const int64_t across = ceil_div(vectors, width);
  const int64_t apart = sums ? std::max<int64_t>(across, period / 2) : across;
  const int64_t most = ceil_div(shapes.stream_blocks * multiprocessors, apart);
  int64_t down = ceil_div(lines, int64_t(height) * 4);
  if (down > most) down = most;
  if (down > 65535) down = 65535;
  const int64_t lines_per_block = ceil_div(ceil_div(lines, down), height) * height;
  down = ceil_div(lines, lines_per_block);
  return {dim3(unsigned(across), unsigned(down)), dim3(width, height), lines, lines_per_block,
          period};
}

// A launch in which a block adds up the partial results of some columns.
struct Finalise {
  dim3 grid;
  dim3 block;
};

// The more partial results a column has, the more threads share them, down to 32 bytes of columns,
// what the memory moves at least.
inline Finalise finalise_shape(int64_t channels, int64_t partials) {
  constexpr int kThreads = 256;
  int width = 32;
  while (width > 8 && partials > 2 * kThreads / width) width /= 2;
  return {dim3(unsigned(ceil_div(channels, width))), dim3(width, kThreads / width)};
}

// A launch in which `lanes` threads hold one segment (a row, or a group of its channels) in
// registers, `items` vectors each, and a block has `across` neighbouring segments of `height` rows
// at a time. seat_of() in reduce.cuh says which thread has what.
struct Row {
  dim3 grid;
  dim3 block;
  int lanes;
  int across;
  int height;
  int items;
  int period;
  int64_t step;  // rows from one turn of a block to the next
};

// The launch bounds of a row kernel, which decide how many registers a thread has: threads of a
// block, and blocks that a multiprocessor holds. With one item those are `blocks` where that is
// four neighbours, or one less. With two items of four neighbours, where a thread has little else
// to keep, the bound is higher than any block, for more of them at a time.
constexpr int row_threads(int items, int vector, int blocks) {
  return items == 1 ? 256 : items == 2 && vector == 4 && blocks > 3 ? 768 : 512;
}
constexpr int row_blocks(int items, int vector, int blocks) {
  return items > 1 ? 1 : vector > 4 ? blocks - 1 : blocks;
}

// Whether the threads of a row kernel have twice as much of a segment as they must, `share`
// elements: fewer instructions for each of them, and fewer warps to exchange the results of a long
// segment, but beginnings and ends that take longer. It pays from half a dozen turns of 512 threads
// a multiprocessor on.
inline bool row_doubles(const Shapes& shapes, int64_t elements, int share, int multiprocessors) {
  if (shapes.row_share != 0) return shapes.row_share == 2;
  return elements >= int64_t(6) * 512 * share * multiprocessors;
}

// Lanes of a warp for a segment of up to 32 vectors. The sum over a power of two is the simpler
// one, so there are fewer only where a warp then holds more segments.
inline int row_lanes(int64_t vectors) {
  const int power = power_of_two_from(vectors);
  return 32 / vectors > 32 / power ? int(vectors) : power;
}

// Neighbouring segments of a row that a block has, where its warps hold `a_warp` each: as many as a
// warp, or down to half of them where fewer places stay empty, behind a row's last segment and
// behind the block's last row. Not more: the more rows a block has, the fewer are its partial
// results.
inline int row_across(int64_t groups, int a_warp, int warps) {
  const int most = groups < a_warp ? int(groups) : a_warp;
  const int places = a_warp * warps;
  int best = most;
  for (int across = most - 1; across * 2 >= most; --across) {
    const int64_t blocks = ceil_div(groups, across), blocks_of_best = ceil_div(groups, best);
    if (places / across * blocks_of_best > places / best * blocks) best = across;
  }
  return best;
}

// The most turns of a block where warps share sectors of memory, as far as the grid goes. The warp
// that has the rest of a sector must not fall behind by more than the L2 holds, or each of them
// reads it, and writes its part of it, alone; warps that start together stay together that long.
// With column sums blocks are few, since each of them has partial results.
constexpr int kRowTurns = 32;
constexpr int kSector = 16;  // elements: one of 16 bits, two of float32

// Whether warps with `a_warp` segments each share sectors, in blocks of `across` segments of
// `height` rows: whether a warp, or a block, may begin within one.
inline bool shares_sectors(int64_t groups, int64_t length, int a_warp, int across, int height) {
  const int64_t row = groups * length;
  if (across == groups) return a_warp * length % kSector != 0 || height * row % kSector != 0;
  return std::gcd(a_warp, across) * length % kSector != 0 || row % kSector != 0;
}

// items is 0 where a segment is longer than `most_items` vectors for each thread of a block, or
// where the split schedule is faster, if the sizes decide. `doubles`: whether two vectors a thread
// are faster than one; with column sums that is about long segments only.
inline Row row_shape(
    const Shapes& shapes, int64_t rows, int64_t groups, int64_t length, int vector, bool packed,
    int most_items, bool doubles, bool sums, int blocks, int multiprocessors) {
  // Where a segment does not begin at a multiple of a vector, it touches up to one more.
  const int64_t vectors = packed ? ceil_div(length, vector) : (length + vector - 2) / vector + 1;
  const int two = std::min(2, most_items);
  const int period = packed ? 1 : row_period(groups * length, vector);
  const Row none{dim3(1), dim3(1), 0, 0, 0, 0, 1, 0};
  Row shape{dim3(1), dim3(256), 1, 1, 1, 1, period, 0};
  if (vectors <= 32 * two) {
    // Short segments: some lanes of a warp each, with two vectors where one leaves more lanes idle,
    // or where that is asked for and leaves no more of them idle. Not a lane alone: its neighbours'
    // vectors would be two apart.
    const int half = row_lanes(ceil_div(vectors, two));
    shape.lanes = vectors <= 32 ? row_lanes(vectors) : half;
    const int a_warp_of_one = 32 / shape.lanes * two, a_warp_of_two = 32 / half;
    const bool fuller = a_warp_of_two > a_warp_of_one;
    const bool twice = doubles && !sums && half > 1 && a_warp_of_two == a_warp_of_one;
    if (vectors > 32 || fuller || twice) {
      shape.items = two;
      shape.lanes = half;
    }
    const int a_warp = 32 / shape.lanes;
    shape.across = row_across(groups, a_warp, 256 / 32);
    shape.height = 256 / 32 * a_warp / shape.across;
  } else {
    // Long segments: one block each, of up to 256 threads, then with a few items, then of up to
    // 512, in whole warps. Fewer warps exchange their results sooner: where it is asked for, with
    // two items from the beginning, if that leaves no more threads idle.
    const auto threads = [&](int items) { return int(ceil_div(vectors, 32 * items) * 32); };
    if (doubles && threads(two) * two == threads(1)) shape.items = two;
    int most_threads = 256;
    while (int64_t(most_threads) * shape.items < vectors) {
      const bool enough = shape.items >= shapes.row_items || shape.items == most_items;
      if ((most_threads < 512 && enough) || shape.items == most_items) {
        most_threads *= 2;
      } else {
        shape.items *= 2;
      }
      if (most_threads > (shape.items > 1 ? 512 : 256)) return none;
    }
    // A block of not much more than 256 threads leaves no room for a second one: half as many
    // threads do better, with twice the vectors.
    const bool alone = threads(shape.items) > 256 && threads(shape.items) <= 352;
    const bool doubled = alone && shape.items * 2 <= most_items;
    if (doubled) shape.items *= 2;
    shape.lanes = threads(shape.items);
    // Where the sizes decide, a second read is faster than so few threads on a multiprocessor; and
    // where each has few segments, than so few threads with all that their registers hold, or, from
    // a quarter of a segment for each on, than large blocks without vectors that have column sums.
    const int64_t segments = rows * groups;
    const bool ragged = length % vector != 0;
    const bool thin = alone && !doubled && vector > 4 && ragged && segments > 2 * multiprocessors;
    const bool full = doubled && shape.items > 4 && segments <= 8 * multiprocessors;
    const bool large = sums && ragged && shape.lanes > 352 && segments * 4 > multiprocessors &&
        segments <= 4 * multiprocessors;
    if (shapes.schedule == kAutomatic && (thin || full || large)) return none;
    shape.block = dim3(unsigned(shape.lanes));
  }
  const int64_t across = ceil_div(groups, shape.across);
  // Registers are given to warps: the launch bounds leave room for more blocks that are smaller.
  const int64_t resident = row_threads(shape.items, vector, blocks) *
      row_blocks(shape.items, vector, blocks) / int(shape.block.x);
  // All turns of a thread begin at the same place in a vector: blocks come by the period.
  int64_t down = resident * multiprocessors * shapes.row_waves / (across * period);
  if (down < 1) down = 1;
  const int64_t most = ceil_div(rows, int64_t(shape.height) * period);
  const int a_warp = shape.lanes <= 32 ? 32 / shape.lanes : 1;
  const bool shares = shares_sectors(groups, length, a_warp, shape.across, shape.height);
  if (shares && !sums) down *= ceil_div(most, down * kRowTurns);
  if (down > most) down = most;
  if (down * period > 65535) down = 65535 / period;
  shape.grid = dim3(unsigned(across), unsigned(down * period));
  shape.step = down * shape.height * period;
  return shape;
}

// One block a segment, as long as the grid may be.
inline dim3 segment_grid(int64_t rows, int64_t groups) {
  const int64_t segments = rows * groups;
  return dim3(unsigned(segments < 0x7fffffff ? segments : 0x7fffffff));
}

// A launch in which a cluster of grid.y blocks holds a tile of columns in shared memory: each block
// rows_per_block of their rows, the last ones fewer or none.
struct Column {
  dim3 grid;
  dim3 block;
  int rows_per_block;
  size_t shared_bytes;
  bool fits;
};

// What a tile takes of shared memory, in bytes: each of its elements, an element of the narrowest
// tensor in it, what a warp sums of a column, and what a block of a cluster shows of one.
struct TileBytes {
  int64_t element, narrowest, sums, exchange;
};

// A tile of `width` vectors over `cluster` blocks. A block is a warp, or no higher than its rows;
// where there are several tiles for each multiprocessor, smaller blocks if rows are few: then more
// of them are resident.
inline Column column_tile(
    int64_t rows, int64_t channels, int vector, const TileBytes& bytes, int width, int cluster,
    int multiprocessors) {
  constexpr int kThreads = 512;
  const int64_t rows_per_block = ceil_div(rows, cluster);
  const int64_t columns = int64_t(width) * vector;
  const bool many = ceil_div(channels, columns) * cluster > 2 * multiprocessors;
  int height = kThreads / width;
  while (height > rows_per_block && height * width > 32) height /= 2;
  const int least = bytes.element < 4 ? 16 : 8;  // rows of a thread
  while (many && height * least > rows_per_block && height * width > 128) height /= 2;
  const int64_t tile = ceil_div(rows_per_block * columns * bytes.element, 16) * 16;
  const int64_t sums = columns * bytes.sums * (height * width / 32);
  const int64_t exchange = cluster > 1 ? columns * bytes.exchange * (cluster + 1) : 0;
  return {dim3(unsigned(ceil_div(channels, columns)), unsigned(cluster)), dim3(width, height),
          int(rows_per_block), size_t(tile + exchange + sums), true};
}

// Whether a cluster that shares one of few tiles is faster than a second read, as measured: nearly
// half of the multiprocessors have a block, or a block has few rows. Clusters of more than two must
// all be resident at once, with room for a second block on a multiprocessor, or else leave a
// quarter of the multiprocessors out: larger clusters cannot fill them all.
inline bool shares_well(const Column& tile, int64_t share, int most_cluster, int multiprocessors) {
  const int64_t cluster = tile.grid.y;
  const int64_t blocks = tile.grid.x * cluster;
  const bool spread = blocks * 9 >= int64_t(multiprocessors) * 4 || tile.rows_per_block <= 512 ||
      cluster * 2 > most_cluster;
  if (cluster <= 2) return spread;
  const bool small = int64_t(tile.shared_bytes) <= share;
  return spread && blocks <= multiprocessors &&
      (small || (blocks * 4 <= int64_t(multiprocessors) * 3 && tile.rows_per_block <= 1024));
}

// The first aim that can be reached, and for that the widest tile, over as few blocks as possible.
// Memory is read in sectors of 32 bytes, and faster in pairs of them; threads whose columns are not
// packed access as many neighbours at once as the tile has vectors. Where several blocks fit a
// multiprocessor, one reads while another one reduces. Where the sizes decide, what needs narrower
// tiles or larger clusters is left to the split schedule, which is faster then. But few tiles,
// which would leave multiprocessors without a block, are narrow and shared by more blocks.
inline Column column_shape(
    const Shapes& shapes, int64_t rows, int64_t channels, int vector, bool packed,
    const TileBytes& bytes, int64_t limit, int most_cluster, int multiprocessors) {
  struct Aim {
    int64_t row_bytes, shared_bytes;
  };
  const bool automatic = shapes.schedule == kAutomatic;
  const int64_t blocks = shapes.column_blocks;
  const int64_t share = (limit - (blocks - 1) * 1024) / blocks;  // a block takes 1 KB besides
  const int64_t wide = packed ? 64 : 128;
  const int64_t vector_bytes = vector * bytes.narrowest;
  const int64_t least = std::max(vector_bytes * 4, wide / 2);
  const Aim chosen[] = {{wide, share}, {wide, limit}, {least, limit}};
  const Aim asked[] = {{wide, share}, {wide / 2, share}, {32, limit}};
  const bool few = automatic && packed && channels * bytes.narrowest / 64 * 2 < multiprocessors;
  const int aims = automatic && !packed ? 2 : 3;
  // Single elements of 16 bits do not come by asynchronous copies, and the split schedule has
  // vectors at any size: a tile pays for few rows only. Not so if it is an address that forbids
  // vectors.
  const bool slow = automatic && bytes.narrowest < 4 && channels % vector != 0;
  if (slow && rows > 256) return {dim3(1), dim3(1), 0, 0, false};
  const int clusters = automatic && !few ? std::min(packed ? 2 : 1, most_cluster) : most_cluster;
  // Two at least: what lies behind a tile is aligned for any type.
  int most = 2;
  const int widest = few ? 4 : (rows > 16 ? 16 : 32);
  while (most < widest && most * vector < channels) most *= 2;
  for (int cluster = int(shapes.column_cluster); cluster <= clusters; cluster *= 2) {
    for (int i = 0; i < aims; ++i) {
      const Aim& aim = automatic ? chosen[i] : asked[i];
      for (int width = most; width >= 2; width /= 2) {
        if (width < most && width * vector_bytes < aim.row_bytes) break;
        const Column tile =
            column_tile(rows, channels, vector, bytes, width, cluster, multiprocessors);
        if (int64_t(tile.shared_bytes) > aim.shared_bytes) continue;
        if (few && !shares_well(tile, share, most_cluster, multiprocessors)) continue;
        // One tile at a time is worth it as long as each multiprocessor has few of them: two that
        // are narrow, four of 16 bits, eight of float32 without vectors, any number of others.
        const bool lone = int64_t(tile.shared_bytes) > share;
        const bool narrow = width * vector_bytes < wide;
        const bool limited = narrow || bytes.narrowest < 4 || !packed;
        const int64_t blocks_of_all = int64_t(tile.grid.x) * cluster;
        const int64_t most_lone = (narrow ? 2 : bytes.narrowest < 4 ? 4 : 8) * multiprocessors;
        if (automatic && lone && limited && blocks_of_all > most_lone) continue;
        // So is a pair of blocks for each tile.
        if (automatic && cluster > 1 && blocks_of_all > 4 * multiprocessors) continue;
        return tile;
      }
    }
  }
  return {dim3(1), dim3(1), 0, 0, false};
}

}  // namespace fusegen
