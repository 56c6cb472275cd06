// Functions that kernels of several .cu files call. KernelFile writes them in front of the source of each file.

constexpr unsigned ALL_LANES = 0xffffffffu;

// The lanes of a warp: fewer in a block of fewer threads.
__device__ __forceinline__ int lanes_of_warp() { return blockDim.x < warpSize ? int(blockDim.x) : int(warpSize); }

// Add the values of all lanes of a warp. Every lane gets the sum.
__device__ __forceinline__ double sum_of_warp(double value) {
    for (int distance = lanes_of_warp() / 2; distance; distance /= 2)
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
}

// Reduce the integers of all lanes of a warp. Every lane gets the result.
#if !defined(CUDA_ON_CPU) && __CUDA_ARCH__ >= 800
__device__ __forceinline__ int max_of_warp(int value) { return __reduce_max_sync(ALL_LANES, value); }
template <class T> __device__ __forceinline__ T min_of_warp(T value) { return __reduce_min_sync(ALL_LANES, value); }
#else
__device__ __forceinline__ int max_of_warp(int value) {
    for (int distance = lanes_of_warp() / 2; distance; distance /= 2)
        value = max(value, __shfl_xor_sync(ALL_LANES, value, distance));
    return value;
}
template <class T> __device__ __forceinline__ T min_of_warp(T value) {
    for (int distance = lanes_of_warp() / 2; distance; distance /= 2)
        value = min(value, __shfl_xor_sync(ALL_LANES, value, distance));
    return value;
}
#endif

// Combine the values of all threads of a block in pairs. Every thread gets the result. `shared` has room for a value of
// each thread.
template <class T, class Combine>
__device__ __forceinline__ T combined_in_block(T value, T* shared, Combine combine) {
    shared[threadIdx.x] = value;
    __syncthreads();
    for (unsigned step = 1; step < blockDim.x; step *= 2) {
        if (threadIdx.x % (2 * step) == 0 && threadIdx.x + step < blockDim.x)
            shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + step]);
        __syncthreads();
    }
    T result = shared[0];
    __syncthreads();
    return result;
}

template <class T> __device__ __forceinline__ T sum_of_block(T value, T* shared) {
    return combined_in_block(value, shared, [](T a, T b) { return a + b; });
}

// The float32 value of the bits of a float16.
__device__ __forceinline__ float value_of(unsigned short bits) {
    unsigned sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31, fraction = bits & 1023;
    if (exponent == 31) // infinity and NaN
        return __uint_as_float(sign | 0x7f800000u | fraction << 13);
    if (exponent)
        return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
    float value = float(fraction) * 5.9604644775390625e-8f; // 2^-24: a subnormal number
    return sign ? -value : value;
}
__device__ __forceinline__ float value_of(float value) { return value; }
