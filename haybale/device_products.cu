// Split float32 matrices for products on tensor cores.

// Round to the nearest number with 10 explicit bits of the mantissa, ties to even. Infinity and NaN do not occur.
__device__ __forceinline__ float rounded_to_tf32(float value) {
    unsigned bits = __float_as_uint(value);
    return __uint_as_float((bits + 0xFFFu + (bits >> 13 & 1u)) & ~0x1FFFu);
}

// Write each value of (rows, width) as high + low, two (rows, padded_width) matrices. The columns beyond width are zero.
extern "C" __global__ void split_for_tf32(
    const float* __restrict__ values, int rows, int width, int padded_width, float* __restrict__ high,
    float* __restrict__ low) {
    long long step = (long long)gridDim.x * blockDim.x, size = (long long)rows * padded_width;
    for (long long k = (long long)blockIdx.x * blockDim.x + threadIdx.x; k < size; k += step) {
        long long row = k / padded_width, column = k % padded_width;
        float value = column < width ? values[row * width + column] : 0.0f;
        float rounded = rounded_to_tf32(value);
        high[k] = rounded;
        low[k] = rounded_to_tf32(value - rounded);
    }
}
