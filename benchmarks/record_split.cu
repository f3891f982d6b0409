// What benchmarks/record_split.py records: wgmma.m64n8k16, fp16 to fp32, by itself and in products.
#include <cuda_fp16.h>

#include <cstdint>

namespace {

constexpr int kRows = 64, kColumns = 8, kDepth = 16;  // of the instruction
constexpr int kThreads = 128;                         // a warpgroup
constexpr int kLow = 11;                              // low pieces are times 2^11

// Where an element is in shared memory, without swizzle: core matrices of 8 rows and 16 bytes, the
// two of the same rows next to each other.
__device__ int place(int row, int k) { return (row / 8 * 2 + k / 8) * 64 + row % 8 * 8 + k % 8; }

__device__ uint64_t descriptor(const __half* tile) {
  const uint64_t address = __cvta_generic_to_shared(tile);
  const uint64_t next_in_k = 128, next_rows = 256;  // bytes from a core matrix to the next one
  return (address & 0x3ffff) >> 4 | (next_in_k >> 4) << 16 | (next_rows >> 4) << 32;
}

struct Tiles {
  __half left[kRows * kDepth], right[kColumns * kDepth];
};

// left, right: their first columns of `depth`, from `first` on.
__device__ void load(
    Tiles& tiles, const __half* left, const __half* right, int64_t first, int64_t depth) {
  __syncthreads();
  for (int i = threadIdx.x; i < kRows * kDepth; i += kThreads) {
    const int row = i / kDepth, k = i % kDepth;
    tiles.left[place(row, k)] = left[row * depth + first + k];
    if (row < kColumns) tiles.right[place(row, k)] = right[row * depth + first + k];
  }
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
}

// d = left right^T + d, or without `keep` the product alone.
__device__ void multiply(float (&d)[4], const Tiles& tiles, bool keep) {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile(
      "{\n"
      ".reg .pred keep;\n"
      "setp.ne.b32 keep, %6, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
      "{%0, %1, %2, %3}, %4, %5, keep, 1, 1, 0, 0;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "l"(descriptor(tiles.left)), "l"(descriptor(tiles.right)), "r"(int(keep))
      : "memory");
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

__device__ int result_row(int i) {
  return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + i / 2 * 8;
}
__device__ int result_column(int i) { return threadIdx.x % 4 * 2 + i % 2; }
__device__ int result_place(int i) { return result_row(i) * kColumns + result_column(i); }

// A block for each instruction.
__global__ void __launch_bounds__(kThreads)
    step_kernel(const __half* left, const __half* right, const float* before, float* after) {
  __shared__ __align__(128) Tiles tiles;
  const int64_t at = blockIdx.x;
  load(tiles, left + at * kRows * kDepth, right + at * kColumns * kDepth, 0, kDepth);
  float d[4];
  for (int i = 0; i < 4; ++i) d[i] = before[at * kRows * kColumns + result_place(i)];
  multiply(d, tiles, true);
  for (int i = 0; i < 4; ++i) after[at * kRows * kColumns + result_place(i)] = d[i];
}

// A thread for each row. The row's elements are finite.
__global__ void split_kernel(
    const float* values, int rows, int64_t depth, __half* high, __half* low, int* exponents) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  values += row * depth, high += row * depth, low += row * depth;
  float largest = 0;
  for (int64_t k = 0; k < depth; ++k) largest = fmaxf(largest, fabsf(values[k]));
  const int exponent = largest == 0 ? 0 : 14 - ilogbf(largest);
  for (int64_t k = 0; k < depth; ++k) {
    const float scaled = ldexpf(values[k], exponent);
    high[k] = __float2half_rn(scaled);
    low[k] = __float2half_rn(ldexpf(scaled - __half2float(high[k]), kLow));
  }
  exponents[row] = exponent;
}

struct Pieces {
  __half *high, *low;
  int* exponents;
};

// high high' in chunks of K, which are added to a float32 sum, and low high' and high low' beside
// it, in this order, all through K.
__global__ void __launch_bounds__(kThreads)
    product_kernel(Pieces left, Pieces right, int64_t depth, int64_t chunk, float* result) {
  __shared__ __align__(128) Tiles tiles;
  float sum[4] = {}, product[4] = {}, cross[4] = {};
  for (int64_t k = 0; k < depth; k += kDepth) {
    load(tiles, left.high, right.high, k, depth);
    multiply(product, tiles, k % chunk != 0);
    load(tiles, left.low, right.high, k, depth);
    multiply(cross, tiles, k != 0);
    load(tiles, left.high, right.low, k, depth);
    multiply(cross, tiles, true);
    if ((k + kDepth) % chunk == 0 || k + kDepth == depth)
      for (int i = 0; i < 4; ++i) sum[i] = __fadd_rn(sum[i], product[i]);
  }
  for (int i = 0; i < 4; ++i)
    result[result_place(i)] = ldexpf(
        fmaf(cross[i], ldexpf(1, -kLow), sum[i]),
        -(left.exponents[result_row(i)] + right.exponents[result_column(i)]));
}

// An array on the device, with what the host has in it; what `read` gives is copied back.
template <typename T>
struct Array {
  T* data = nullptr;
  size_t bytes;
  explicit Array(size_t count, const T* from = nullptr) : bytes(count * sizeof(T)) {
    if (cudaMalloc(&data, bytes) == cudaSuccess && from)
      cudaMemcpy(data, from, bytes, cudaMemcpyHostToDevice);
  }
  ~Array() { cudaFree(data); }
  void read(T* to) const { cudaMemcpy(to, data, bytes, cudaMemcpyDeviceToHost); }
};

}  // namespace

// All arrays are the host's. Both return a cudaError_t.
extern "C" {

// count instructions: after = left right^T + before.
int record_steps(
    int count, const __half* left, const __half* right, const float* before, float* after) {
  const Array<__half> a(count * kRows * kDepth, left), b(count * kColumns * kDepth, right);
  const Array<float> c(count * kRows * kColumns, before), d(count * kRows * kColumns);
  step_kernel<<<count, kThreads>>>(a.data, b.data, c.data, d.data);
  d.read(after);
  return cudaGetLastError();
}

// left [64, depth], right [8, depth]. pieces: high and low of left, then high and low of right.
int record_product(
    const float* left, const float* right, int64_t depth, int64_t chunk, __half* pieces,
    float* result) {
  const Array<float> x(kRows * depth, left), w(kColumns * depth, right), y(kRows * kColumns);
  const Array<__half> halves(2 * (kRows + kColumns) * depth);
  const Array<int> exponents(kRows + kColumns);
  const Pieces of_x = {halves.data, halves.data + kRows * depth, exponents.data};
  __half* rest = of_x.low + kRows * depth;
  const Pieces of_w = {rest, rest + kColumns * depth, exponents.data + kRows};
  split_kernel<<<1, kRows>>>(x.data, kRows, depth, of_x.high, of_x.low, of_x.exponents);
  split_kernel<<<1, kRows>>>(w.data, kColumns, depth, of_w.high, of_w.low, of_w.exponents);
  product_kernel<<<1, kThreads>>>(of_x, of_w, depth, chunk, y.data);
  halves.read(pieces);
  y.read(result);
  return cudaGetLastError();
}

}
