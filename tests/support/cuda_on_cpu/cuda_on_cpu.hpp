// CUDA C++ as plain C++: what a .cu file of haybale uses of CUDA, for one core of a CPU.
//
// A block of one thread is a plain call. In a block of several threads, each thread is a fibre with a stack of its own.
// A fibre runs until it waits at a barrier or a shuffle, and `order` decides which fibre runs next: a kernel that lacks
// a barrier gives other results in another order. In a random order, some warps also run ahead of others. Blocks run one
// after the other, from the first or from the last; those of a cluster run together.
#pragma once
#define CUDA_ON_CPU

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <type_traits>
#include <ucontext.h>
#include <vector>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __restrict__ __restrict
#define __launch_bounds__(...)
// A shared variable inside a function is one variable for all fibres. Unlike thread_local, __thread has no initialiser
// to call, which GCC 12 calls in a template although there is none.
#define __shared__ __thread

using std::max;
using std::min;

struct uint3 {
    unsigned x, y, z;
};
typedef uint3 dim3;
inline thread_local uint3 threadIdx, blockIdx, blockDim, gridDim;
constexpr int warpSize = 32;
constexpr size_t MOST_SHARED = 227 * 1024; // bytes that a block may have on compute capability 9.0
constexpr unsigned MOST_BLOCKS = 8; // of a cluster
alignas(128) inline __thread unsigned char dynamic_shared[MOST_BLOCKS * MOST_SHARED]; // of each block of a cluster

namespace on_cpu {

enum class Waits { for_nothing, for_cluster, for_block, for_warp };

struct Fibre {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    Waits waits = Waits::for_nothing;
    bool ended = false;
    uint64_t exchanged = 0;
};

inline thread_local std::vector<Fibre> fibres; // of all blocks of a cluster
inline thread_local unsigned n_blocks = 1, n_threads = 1; // of the cluster, and of each block
inline thread_local ucontext_t scheduler;
inline thread_local unsigned current = 0;
inline thread_local const std::function<void()>* body = nullptr;
inline thread_local const char* failure = nullptr;

inline void wait(Waits reason) {
    fibres[current].waits = reason;
    swapcontext(&fibres[current].context, &scheduler);
}

inline void set_block(unsigned number) {
    blockIdx = {number % gridDim.x, number / gridDim.x % gridDim.y, number / (gridDim.x * gridDim.y)};
}

inline void run_fibre() {
    (*body)();
    fibres[current].ended = true;
    swapcontext(&fibres[current].context, &scheduler);
}

// Let the fibres first .. end - 1 go on, if all that have not ended wait for a reason; return whether they did.
inline bool release(size_t first, size_t end, Waits reason) {
    bool ended = false, any = false;
    for (size_t i = first; i < end; i++) {
        if (!fibres[i].ended && fibres[i].waits != reason)
            return false;
        (fibres[i].ended ? ended : any) = true;
    }
    if (any && ended)
        failure = "some threads ended while others wait for them";
    for (size_t i = first; i < end; i++)
        fibres[i].waits = Waits::for_nothing;
    return any;
}

// Let the fibres go on that wait for each other: those of the cluster, of a block, or of a warp. Return whether any are
// left.
inline bool release() {
    bool any = false, can_run = false;
    for (const Fibre& fibre : fibres) {
        any |= !fibre.ended;
        can_run |= !fibre.ended && fibre.waits == Waits::for_nothing;
    }
    if (!any)
        return false;
    bool released = release(0, fibres.size(), Waits::for_cluster);
    for (size_t first = 0; first < fibres.size(); first += n_threads)
        released |= release(first, first + n_threads, Waits::for_block);
    for (size_t first = 0; first < fibres.size() && n_threads > 1; first += warpSize)
        released |= release(first, std::min(first + warpSize, fibres.size()), Waits::for_warp);
    if (!released && !can_run)
        failure = "threads wait at different barriers, or not all lanes of a warp take part in an exchange";
    return !failure;
}

inline void run_blocks(unsigned first_block, unsigned order) {
    unsigned threads = n_blocks * n_threads;
    fibres.clear();
    fibres.resize(threads);
    std::vector<unsigned> turns(threads);
    for (unsigned i = 0; i < threads; i++)
        turns[i] = i;
    std::mt19937 random(order + first_block);
    unsigned late_warps = order > 1 ? random() : 0; // by the number of a warp; they wait for some rounds
    for (unsigned i = 0; i < threads; i++) {
        constexpr size_t size = 64 * 1024;
        fibres[i].stack.reset(new char[size]);
        getcontext(&fibres[i].context);
        fibres[i].context.uc_stack.ss_sp = fibres[i].stack.get();
        fibres[i].context.uc_stack.ss_size = size;
        fibres[i].context.uc_link = nullptr;
        makecontext(&fibres[i].context, run_fibre, 0);
    }
    do {
        if (order == 1)
            std::reverse(turns.begin(), turns.end());
        else if (order > 1)
            std::shuffle(turns.begin(), turns.end(), random);
        if (order > 1 && random() % 16 == 0)
            late_warps = random();
        for (unsigned i : turns) {
            if (late_warps >> i / warpSize % 32 & 1)
                continue;
            if (fibres[i].ended || fibres[i].waits != Waits::for_nothing)
                continue;
            current = i;
            set_block(first_block + i / n_threads);
            unsigned thread = i % n_threads, width = blockDim.x * blockDim.y;
            threadIdx = {thread % blockDim.x, thread % width / blockDim.x, thread / width};
            swapcontext(&scheduler, &fibres[i].context);
        }
    } while (release());
}

// CuPy compiles kernels with -ftz=true: numbers of float32 below 2^-126 count as zero, and so do such results. Here those
// of float64 below 2^-1022 do, too.
class WithoutSmallNumbers {
#if defined(__SSE2__)
    unsigned before = _mm_getcsr();

  public:
    WithoutSmallNumbers() { _mm_setcsr(before | 0x8040); }
    ~WithoutSmallNumbers() { _mm_setcsr(before); }
#endif
};

// Run a kernel by clusters of blocks, mostly of one; return nullptr, or what went wrong.
inline const char* launch(dim3 grid, dim3 block, unsigned cluster, size_t shared, unsigned order,
                          const std::function<void()>& kernel) {
    WithoutSmallNumbers mode;
    gridDim = grid, blockDim = block, body = &kernel, failure = nullptr;
    n_blocks = cluster, n_threads = block.x * block.y * block.z;
    unsigned blocks = grid.x * grid.y * grid.z;
    if (shared > MOST_SHARED || !n_threads || n_threads > 1024 || !blocks)
        return "a launch has up to 1024 threads a block, 227 KiB of shared memory, and at least one block";
    if (cluster > MOST_BLOCKS || grid.x % cluster)
        return "a cluster has up to 8 blocks, and the number of blocks is a multiple of it";
    for (unsigned n = 0; n < blocks && !failure; n += cluster) {
        unsigned first = order % 2 ? blocks - cluster - n : n;
#if defined(__SANITIZE_ADDRESS__)
        __asan_unpoison_memory_region(dynamic_shared, MOST_BLOCKS * MOST_SHARED);
#endif
        std::memset(dynamic_shared, 0xFF, cluster * MOST_SHARED); // shared memory begins with garbage: NaN as floats
#if defined(__SANITIZE_ADDRESS__)
        size_t used = (shared + 7) / 8 * 8;
        for (unsigned number = 0; number < cluster; number++)
            __asan_poison_memory_region(dynamic_shared + number * MOST_SHARED + used, MOST_SHARED - used);
#endif
        set_block(first);
        threadIdx = {0, 0, 0}, current = 0;
        fibres.clear();
        if (n_threads == 1 && cluster == 1)
            kernel();
        else
            run_blocks(first, order);
    }
    return failure;
}

// The values of all lanes of a warp, exchanged: `from` gives the lane that is read.
template <class T, class From> T exchanged(unsigned mask, T value, From from) {
    static_assert(sizeof(T) <= 8, "a shuffle moves 4 or 8 bytes");
    if (mask != 0xffffffffu)
        std::fprintf(stderr, "a shuffle must name all lanes\n"), std::abort();
    if (fibres.empty() || blockDim.x * blockDim.y * blockDim.z == 1)
        return value; // a block of one thread: the other lanes do not exist
    unsigned lane = current % warpSize, first = current - lane; // blocks of several threads have whole warps
    std::memcpy(&fibres[current].exchanged, &value, sizeof(T));
    wait(Waits::for_warp);
    unsigned source = from(lane);
    T result = value;
    if (source < warpSize && first + source < fibres.size())
        std::memcpy(&result, &fibres[first + source].exchanged, sizeof(T));
    wait(Waits::for_warp);
    return result;
}

} // namespace on_cpu

// Clusters, as the files that use them define them for a device.
inline unsigned blocks_of_cluster() { return on_cpu::n_blocks; }
inline unsigned block_of_cluster() { return on_cpu::current / on_cpu::n_threads; }
inline void wait_for_cluster() { on_cpu::wait(on_cpu::Waits::for_cluster); }
inline unsigned char* shared_of_block(unsigned char* shared) { return shared + block_of_cluster() * MOST_SHARED; }
inline void store_in_block(unsigned long long* address, unsigned block, unsigned long long value) {
    long long blocks = (long long)block - block_of_cluster();
    std::memcpy((unsigned char*)address + blocks * (long long)MOST_SHARED, &value, sizeof(value));
}

inline void __syncthreads() {
    if (blockDim.x * blockDim.y * blockDim.z > 1)
        on_cpu::wait(on_cpu::Waits::for_block);
}

template <class T> T __shfl_sync(unsigned mask, T value, int source) {
    return on_cpu::exchanged(mask, value, [=](unsigned) { return unsigned(source) % warpSize; });
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int bits) {
    return on_cpu::exchanged(mask, value, [=](unsigned lane) { return lane ^ unsigned(bits); });
}
template <class T> T __shfl_up_sync(unsigned mask, T value, unsigned delta) {
    return on_cpu::exchanged(mask, value, [=](unsigned lane) { return lane - delta; });
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
    if (on_cpu::fibres.empty() || blockDim.x * blockDim.y * blockDim.z == 1)
        return predicate ? 1 : 0;
    unsigned votes = 0;
    on_cpu::exchanged(mask, predicate, [&](unsigned lane) { // called when all lanes have written their predicate
        size_t first = on_cpu::current - lane, end = std::min(first + warpSize, on_cpu::fibres.size());
        for (size_t other = first; other < end; other++) {
            int of_lane;
            std::memcpy(&of_lane, &on_cpu::fibres[other].exchanged, sizeof(of_lane));
            votes |= of_lane ? 1u << (other - first) : 0;
        }
        return lane;
    });
    return votes;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }

template <class T, class U> T atomicAdd(T* address, U value) { T old = *address; *address = old + T(value); return old; }
template <class T, class U> T atomicMax(T* address, U value) { T old = *address; *address = std::max(old, T(value)); return old; }

template <class To, class From> To bits_as(From value) {
    To result;
    static_assert(sizeof(To) == sizeof(From));
    std::memcpy(&result, &value, sizeof(To));
    return result;
}
inline int __float_as_int(float x) { return bits_as<int>(x); }
inline unsigned __float_as_uint(float x) { return bits_as<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return bits_as<float>(x); }
inline long long __double_as_longlong(double x) { return bits_as<long long>(x); }

// The conversions of PTX that keep numbers of float32 below 2^-126, in arithmetic without such numbers.
inline double float32_to_float64(float value) { // cvt.f64.f32
    unsigned bits = bits_as<unsigned>(value), fraction = bits & 0x7fffffu;
    if (bits & 0x7f800000u)
        return value;
    return bits >> 31 ? -(fraction * 0x1p-149) : fraction * 0x1p-149;
}
inline float float64_to_float32(double value) { // cvt.rn.f32.f64
    if (!(std::fabs(value) < 0x1p-126))
        return float(value);
    unsigned fraction = unsigned(std::nearbyint(std::fabs(value) * 0x1p149));
    return bits_as<float>(fraction | (std::signbit(value) ? 0x80000000u : 0u));
}
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
// Its result is 0 for divisors above 2^126, and otherwise has an error of up to 2 units in the last place.
inline float __fdividef(float a, float b) { return std::fabs(b) > 0x1p126f ? 0.0f : a / b; }
template <class T> T __ldg(const T* address) { return *address; }

