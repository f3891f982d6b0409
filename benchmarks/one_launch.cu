// Batch norm over many rows in one launch, which reads twice, the second time from the L2: a variant of the split
// schedule to time, by one_launch.py. Channels are a multiple of a panel's, statistics plain sums around a pilot.
//
// Blocks take panels of columns in the order in which they are launched, which is that of their indices in practice, as
// other scans rely on too: a step has the block that finalises the panel before, then, in turns, the blocks that sum
// slices of the rows of the next panel and those that apply the result to the panel `lag` steps before. A block waits
// for the counter of its panel only, to which blocks before it add, so somebody can always go on. Sums are taken in a
// fixed order.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#define CHECK(call)                                                                        \
  do {                                                                                     \
    const cudaError_t status = (call);                                                     \
    if (status != cudaSuccess) {                                                           \
      std::fprintf(stderr, "line %d: %s\n", __LINE__, cudaGetErrorString(status));         \
      std::exit(1);                                                                        \
    }                                                                                      \
  } while (0)

namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kWidth = 8;                    // vectors of a row of a panel
constexpr int kHeight = kThreads / kWidth;   // rows at a time
constexpr int kTurns = 8, kRows = kTurns * kHeight;  // of a slice

template <typename T>
struct alignas(16) Vector {
  T element[16 / sizeof(T)];
};

__device__ float widen(float x) { return x; }
__device__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
template <typename T>
__device__ T narrow(float x);
template <>
__device__ float narrow<float>(float x) { return x; }
template <>
__device__ __nv_bfloat16 narrow<__nv_bfloat16>(float x) { return __float2bfloat16(x); }

struct Problem {
  const void* x;
  const void* grad;  // backward
  void* out;
  float* partials;     // 2 sums of each column for each slice
  unsigned* counters;  // of each panel
  float* results;      // 3 of each column
  const float* mean;   // forward: any pilot
  const float* rstd;   // backward
  int rows, channels, slices, panels;
};

__device__ unsigned acquire(const unsigned* counter) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}
__device__ void release(unsigned* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

// What is read a second time stays in the L2 before anything else; then it is the first to go.
template <typename V>
__device__ V load_to_keep(const V* from) {
  uint64_t policy;
  uint4 word;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("ld.global.L2::cache_hint.v4.u32 {%0,%1,%2,%3}, [%4], %5;"
               : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w) : "l"(from), "l"(policy));
  V loaded;
  memcpy(&loaded, &word, 16);
  return loaded;
}
template <typename V>
__device__ V load_last(const V* from) {
  const uint4 word = __ldcs(reinterpret_cast<const uint4*>(from));
  V loaded;
  memcpy(&loaded, &word, 16);
  return loaded;
}
template <typename V>
__device__ void store(V* to, const V& value) {
  uint4 word;
  memcpy(&word, &value, 16);
  __stcs(reinterpret_cast<uint4*>(to), word);
}
__device__ void prefetch(const void* line) {
  asm volatile("prefetch.global.L2::evict_last [%0];" ::"l"(line));
}

// kTensors: 1 forward, 2 backward. kBatch: rows that a thread loads together.
template <typename T, int kTensors, int kBatch, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks) one_launch(Problem a, int lag, int ahead) {
  constexpr int kVec = 16 / sizeof(T), kColumns = kWidth * kVec;
  constexpr int kGroups = kThreads / (2 * kColumns) > 0 ? kThreads / (2 * kColumns) : 1;
  using V = Vector<T>;
  __shared__ float shared[kWarps * 2 * kColumns > kThreads ? kWarps * 2 * kColumns : kThreads];
  const int thread = threadIdx.x, lane = thread % kWidth, row_of_thread = thread / kWidth;
  const int of_step = 2 * a.slices + 1;
  const int step = blockIdx.x / of_step, turn = blockIdx.x % of_step;
  const float inverse_rows = 1.0f / a.rows;
  if (turn == 0) {  // finalise
    const int panel = step - 1;
    if (panel < 0 || panel >= a.panels) return;
    if (thread == 0) while (acquire(a.counters + panel) < unsigned(a.slices)) {}
    __syncthreads();
    const float* from = a.partials + size_t(panel) * a.slices * 2 * kColumns;
    float total = 0;
#pragma unroll 16
    for (int slice = thread / (2 * kColumns); slice < a.slices; slice += kGroups) {
      total += __ldcg(from + size_t(slice) * 2 * kColumns + thread % (2 * kColumns));
    }
    shared[thread] = total;
    __syncthreads();
    if (thread < kColumns) {
      float first = 0, second = 0;
      for (int group = 0; group < kGroups; ++group) {
        first += shared[group * 2 * kColumns + thread];
        second += shared[group * 2 * kColumns + kColumns + thread];
      }
      const float mean = a.mean[panel * kColumns + thread];
      first *= inverse_rows;
      second *= inverse_rows;
      float shift, of_grad = 0;
      if (kTensors == 1) {
        const float variance = second - first * first;
        second = rsqrtf(variance + 1e-5f);
        shift = -(first + mean) * second;
      } else {
        const float rstd = a.rstd[panel * kColumns + thread];
        second = -second * rstd * rstd * rstd;
        shift = -mean * second - first * rstd;
        of_grad = rstd;
      }
      float* results = a.results + size_t(panel) * 3 * kColumns + thread;
      __stcg(results, second);
      __stcg(results + kColumns, shift);
      __stcg(results + 2 * kColumns, of_grad);
    }
    __syncthreads();
    if (thread == 0) release(a.counters + panel);
    return;
  }
  const int item = turn - 1;
  const bool apply = item & 1;
  const int slice = item >> 1, panel = apply ? step - lag : step;
  const int64_t pitch = a.channels / kVec;
  const int begin = slice * kRows + row_of_thread, end = min(slice * kRows + kRows, a.rows);
  if (ahead && apply && step + ahead < a.panels) {
    for (int row = slice * kRows + thread; row < end; row += kThreads) {
      prefetch(reinterpret_cast<const V*>(a.x) + int64_t(step + ahead) * kWidth + row * pitch);
      if (kTensors == 2) prefetch(reinterpret_cast<const V*>(a.grad) + int64_t(step + ahead) * kWidth + row * pitch);
    }
  }
  if (panel < 0 || panel >= a.panels) return;
  const V* x = reinterpret_cast<const V*>(a.x) + int64_t(panel) * kWidth + lane;
  const V* grad = reinterpret_cast<const V*>(a.grad) + int64_t(panel) * kWidth + lane;
  V* out = reinterpret_cast<V*>(a.out) + int64_t(panel) * kWidth + lane;
  V x_in[kBatch], grad_in[kTensors == 2 ? kBatch : 1];
  const auto load_rows = [&](int row, V (*load)(const V*)) {
#pragma unroll
    for (int u = 0; u < kBatch; ++u) if (row + u * kHeight < end) {
      x_in[u] = load(x + (row + u * kHeight) * pitch);
      if (kTensors == 2) grad_in[u] = load(grad + (row + u * kHeight) * pitch);
    }
  };
  if (!apply) {
    float mean[kVec];
#pragma unroll
    for (int v = 0; v < kVec; ++v) mean[v] = __ldg(a.mean + panel * kColumns + lane * kVec + v);
    float sums[2 * kVec] = {};
    for (int row = begin; row < end; row += kBatch * kHeight) {
      load_rows(row, load_to_keep<V>);
#pragma unroll
      for (int u = 0; u < kBatch; ++u) if (row + u * kHeight < end) {
#pragma unroll
        for (int v = 0; v < kVec; ++v) {
          const float distance = widen(x_in[u].element[v]) - mean[v];
          if (kTensors == 1) {
            sums[v] += distance;
            sums[kVec + v] += distance * distance;
          } else {
            const float g = widen(grad_in[u].element[v]);
            sums[v] += g;
            sums[kVec + v] += g * distance;
          }
        }
      }
    }
#pragma unroll
    for (int offset = kWidth; offset < 32; offset *= 2) {
#pragma unroll
      for (int v = 0; v < 2 * kVec; ++v) sums[v] += __shfl_xor_sync(~0u, sums[v], offset);
    }
    if (thread % 32 < kWidth) {
#pragma unroll
      for (int v = 0; v < kVec; ++v) {
        shared[(thread / 32) * 2 * kColumns + lane * kVec + v] = sums[v];
        shared[(thread / 32) * 2 * kColumns + kColumns + lane * kVec + v] = sums[kVec + v];
      }
    }
    __syncthreads();
    for (int column = thread; column < 2 * kColumns; column += kThreads) {
      float total = 0;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) total += shared[warp * 2 * kColumns + column];
      __stcg(a.partials + size_t(panel * a.slices + slice) * 2 * kColumns + column, total);
    }
    __syncthreads();
    if (thread == 0) release(a.counters + panel);
    return;
  }
  load_rows(begin, load_last<V>);  // before anything is waited for
  if (thread == 0) while (acquire(a.counters + panel) <= unsigned(a.slices)) {}
  __syncthreads();
  float of_grad[kVec], scale[kVec], shift[kVec];
  const float* results = a.results + size_t(panel) * 3 * kColumns + lane * kVec;
#pragma unroll
  for (int v = 0; v < kVec; v += 4) {
    *reinterpret_cast<float4*>(scale + v) = __ldcg(reinterpret_cast<const float4*>(results + v));
    *reinterpret_cast<float4*>(shift + v) = __ldcg(reinterpret_cast<const float4*>(results + kColumns + v));
    if (kTensors == 2) *reinterpret_cast<float4*>(of_grad + v) = __ldcg(reinterpret_cast<const float4*>(results + 2 * kColumns + v));
  }
  for (int row = begin; row < end; row += kBatch * kHeight) {
    if (row != begin) load_rows(row, load_last<V>);
#pragma unroll
    for (int u = 0; u < kBatch; ++u) if (row + u * kHeight < end) {
      V value;
#pragma unroll
      for (int v = 0; v < kVec; ++v) {
        float y = widen(x_in[u].element[v]) * scale[v] + shift[v];
        if (kTensors == 2) y += widen(grad_in[u].element[v]) * of_grad[v];
        value.element[v] = narrow<T>(y);
      }
      store(out + (row + u * kHeight) * pitch, value);
    }
  }
}

template <typename T>
__global__ void fill(T* x, size_t count, unsigned seed) {
  const size_t step = size_t(gridDim.x) * blockDim.x;
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += step) {
    unsigned bits = unsigned(i) * 2654435761u ^ seed;
    bits = (bits ^ bits >> 15) * 2246822519u;
    bits = (bits ^ bits >> 13) * 3266489917u;
    x[i] = narrow<T>(float(bits ^ bits >> 16) * 2.3283064e-10f * 4.0f - 1.5f);
  }
}

// The largest distance of a column's results to those in double precision.
template <typename T, int kTensors>
__global__ void check(Problem a, float* largest) {
  const auto* x = static_cast<const T*>(a.x);
  const auto* grad = static_cast<const T*>(a.grad);
  const auto* out = static_cast<const T*>(a.out);
  const int column = blockIdx.x;
  const double mean = a.mean[column], rstd = a.rstd[column];
  __shared__ double first[kThreads], second[kThreads];
  double sum = 0, other = 0;
  for (int row = threadIdx.x; row < a.rows; row += kThreads) {
    const size_t at = size_t(row) * a.channels + column;
    const double value = widen(x[at]);
    if (kTensors == 1) {
      sum += value;
      other += value * value;
    } else {
      sum += double(widen(grad[at]));
      other += double(widen(grad[at])) * (value - mean) * rstd;
    }
  }
  first[threadIdx.x] = sum;
  second[threadIdx.x] = other;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      first[threadIdx.x] += first[threadIdx.x + half];
      second[threadIdx.x] += second[threadIdx.x + half];
    }
    __syncthreads();
  }
  sum = first[0] / a.rows;
  other = second[0] / a.rows;
  double most = 0;
  for (int row = threadIdx.x; row < a.rows; row += kThreads) {
    const size_t at = size_t(row) * a.channels + column;
    const double value = widen(x[at]);
    const double hat = (value - mean) * rstd;
    const double exact = kTensors == 1 ? (value - sum) / sqrt(other - sum * sum + 1e-5)
                                       : (double(widen(grad[at])) - sum - hat * other) * rstd;
    const double distance = fabs(exact - double(widen(out[at])));
    if (!(distance <= most)) most = distance == distance ? distance : 1e9;
  }
  atomicMax(reinterpret_cast<int*>(largest), __float_as_int(float(most)));
}

constexpr size_t kFlushed = 256 << 20;  // bytes, more than any L2 has
constexpr int kWarmUp = 4, kSamples = 10;
void* flushed;
cudaEvent_t began, ended;

// Median microseconds of device time from an L2 full of other data.
template <typename Call>
float microseconds(const Call& call) {
  std::vector<float> times;
  for (int i = 0; i < kWarmUp + kSamples; ++i) {
    CHECK(cudaMemsetAsync(flushed, i, kFlushed));
    CHECK(cudaEventRecord(began));
    call();
    CHECK(cudaEventRecord(ended));
    CHECK(cudaEventSynchronize(ended));
    float milliseconds;
    CHECK(cudaEventElapsedTime(&milliseconds, began, ended));
    if (i >= kWarmUp) times.push_back(milliseconds * 1000);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// A line for each distance between the passes, in panels of so many MiB.
template <typename T, int kTensors, int kBatch, int kBlocks>
void measure(Problem a, const char* device, float* largest) {
  constexpr int kColumns = kWidth * 16 / sizeof(T);
  a.slices = (a.rows + kRows - 1) / kRows;
  a.panels = a.channels / kColumns;
  const size_t bytes = size_t(a.rows) * a.channels * sizeof(T);
  const size_t copied = bytes * (kTensors + 1) / 2;
  const float copy = microseconds([&] { CHECK(cudaMemcpyAsync(a.out, a.x, copied, cudaMemcpyDeviceToDevice)); });
  const double panel_mib = double(a.rows) * kWidth * 16 * kTensors / (1 << 20);
  int before = 0;
  for (const double distance : {6.0, 10.0, 14.0}) {
    const int lag = std::max(2, int(distance / panel_mib + 0.5));
    if (lag == before) continue;
    before = lag;
    for (const double early : {0.0, 2.0}) {
      const int ahead = early == 0 ? 0 : std::max(1, int(early / panel_mib + 0.5));
      const auto launch = [&] {
        CHECK(cudaMemsetAsync(a.counters, 0, sizeof(unsigned) * a.panels));
        one_launch<T, kTensors, kBatch, kBlocks>
            <<<(a.panels + lag) * (2 * a.slices + 1), kThreads>>>(a, lag, ahead);
        CHECK(cudaGetLastError());
      };
      CHECK(cudaMemset(a.out, 0xff, bytes));
      CHECK(cudaMemset(largest, 0, sizeof(float)));
      launch();
      check<T, kTensors><<<a.channels, kThreads>>>(a, largest);
      float error;
      CHECK(cudaMemcpy(&error, largest, sizeof(float), cudaMemcpyDeviceToHost));
      std::printf("%s,%s,%d,%d,%d,%d,%.1f,%.1f,%.1e,%s\n", sizeof(T) == 2 ? "bf16" : "fp32",
                  kTensors == 1 ? "forward" : "backward", a.rows, a.channels, lag, ahead, microseconds(launch), copy,
                  error, device);
      std::fflush(stdout);
    }
  }
}

template <typename T, int kForwardBatch, int kBackwardBatch, int kBackwardBlocks>
void measure_type(const Problem& a, const char* device, float* largest) {
  const size_t count = size_t(a.rows) * a.channels;
  fill<<<1024, kThreads>>>(static_cast<T*>(const_cast<void*>(a.x)), count, 1);
  fill<<<1024, kThreads>>>(static_cast<T*>(const_cast<void*>(a.grad)), count, 77);
  measure<T, 1, kForwardBatch, 4>(a, device, largest);
  measure<T, 2, kBackwardBatch, kBackwardBlocks>(a, device, largest);
}

template <typename T>
T* allocate(size_t count) {
  void* memory;
  CHECK(cudaMalloc(&memory, count * sizeof(T)));
  return static_cast<T*>(memory);
}

}  // namespace

int main() {
  constexpr size_t kMost = size_t(1) << 26, kMostColumns = 1 << 16;  // elements
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  CHECK(cudaEventCreate(&began));
  CHECK(cudaEventCreate(&ended));
  flushed = allocate<char>(kFlushed);
  auto* mean = allocate<float>(kMostColumns);
  auto* rstd = allocate<float>(kMostColumns);
  fill<<<64, kThreads>>>(mean, kMostColumns, 5);
  const std::vector<float> given(kMostColumns, 0.9f);
  CHECK(cudaMemcpy(rstd, given.data(), kMostColumns * sizeof(float), cudaMemcpyHostToDevice));
  // A copy of as many bytes as the backward pass moves takes half as much again as a tensor.
  Problem a{allocate<float>(kMost / 2 * 3), allocate<float>(kMost), allocate<float>(kMost / 2 * 3),
            allocate<float>(kMost / 4), allocate<unsigned>(kMostColumns), allocate<float>(3 * kMostColumns),
            mean, rstd, 0, 0, 0, 0};
  auto* largest = allocate<float>(1);
  std::puts("dtype,pass,rows,channels,lag,ahead,us,copy_us,largest_error,device");
  for (const auto [rows, channels] : {std::pair{16384, 4096}, {8192, 8192}, {65536, 1024}}) {
    a.rows = rows;
    a.channels = channels;
    measure_type<float, 8, 4, 4>(a, properties.name, largest);
    measure_type<__nv_bfloat16, 4, 2, 3>(a, properties.name, largest);
  }
}
