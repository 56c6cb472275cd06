// Dense vectors on a device: squared lengths, weighted sums of columns, scaling, and some of the rows.
//
// Every kernel is correct for any number of threads.

// Writes the sum of squares of each row (n, d): a block for each row, which adds in pairs. Shared memory: a float for each
// thread.
template <class T> __device__ void square_rows(const T* vectors, long long d, float* out, float* sums) {
    const T* row = vectors + blockIdx.x * d;
    float sum = 0;
    for (long long k = threadIdx.x; k < d; k += blockDim.x) {
        float value = value_of(row[k]);
        sum += value * value;
    }
    sum = sum_of_block(sum, sums);
    if (!threadIdx.x)
        out[blockIdx.x] = sum;
}

extern "C" __global__ void square_rows_float32(const float* __restrict__ vectors, long long d, float* out) {
    extern __shared__ unsigned char dynamic_shared[];
    square_rows(vectors, d, out, (float*)dynamic_shared);
}

extern "C" __global__ void square_rows_float16(const unsigned short* __restrict__ vectors, long long d, float* out) {
    extern __shared__ unsigned char dynamic_shared[];
    square_rows(vectors, d, out, (float*)dynamic_shared);
}

// Sums share[i] · (x[i, c] - centre[c])^power over parts of the rows of x (n, d), in double precision, into out (parts, d):
// a block for `blockDim.x` columns of a part. The power is 1 or 2.
template <class T>
__device__ void sum_columns(const T* vectors, const double* share, const double* centre, int power, long long n,
                            long long d, int n_parts, int n_blocks, double* out) {
    long long part = blockIdx.x / n_blocks, first = n * part / n_parts, end = n * (part + 1) / n_parts;
    for (long long column = blockIdx.x % n_blocks * (long long)blockDim.x + threadIdx.x; column < d;
         column += n_blocks * (long long)blockDim.x) {
        double sum = 0;
        for (long long row = first; row < end; row++) {
            double value = double(vectors[row * d + column]) - centre[column];
            sum += share[row] * (power == 2 ? value * value : value);
        }
        out[part * d + column] = sum;
    }
}

extern "C" __global__ void sum_columns_float32(const float* __restrict__ vectors, const double* __restrict__ share,
                                               const double* __restrict__ centre, int power, long long n, long long d,
                                               int n_parts, int n_blocks, double* out) {
    sum_columns(vectors, share, centre, power, n, d, n_parts, n_blocks, out);
}

extern "C" __global__ void sum_columns_float64(const double* __restrict__ vectors, const double* __restrict__ share,
                                               const double* __restrict__ centre, int power, long long n, long long d,
                                               int n_parts, int n_blocks, double* out) {
    sum_columns(vectors, share, centre, power, n, d, n_parts, n_blocks, out);
}

// Writes (x - shift) · factor of vectors (n, d); the factor is one number or one for each column.
template <class T>
__device__ void scale(const T* vectors, const T* shift, const T* factor, int n_factors, long long d, long long size,
                      T* out) {
    for (long long k = blockIdx.x * (long long)blockDim.x + threadIdx.x; k < size;
         k += gridDim.x * (long long)blockDim.x) {
        long long column = k % d;
        out[k] = (vectors[k] - shift[column]) * factor[n_factors == 1 ? 0 : column];
    }
}

extern "C" __global__ void scale_float32(const float* __restrict__ vectors, const float* __restrict__ shift,
                                         const float* __restrict__ factor, int n_factors, long long d, long long size,
                                         float* out) {
    scale(vectors, shift, factor, n_factors, d, size, out);
}

extern "C" __global__ void scale_float64(const double* __restrict__ vectors, const double* __restrict__ shift,
                                         const double* __restrict__ factor, int n_factors, long long d, long long size,
                                         double* out) {
    scale(vectors, shift, factor, n_factors, d, size, out);
}

// Copies some rows (·, d): a block for each of them.
template <class T>
__device__ void take_rows(const T* vectors, const long long* rows, long long d, T* out) {
    const T* taken = vectors + rows[blockIdx.x] * d;
    for (long long column = threadIdx.x; column < d; column += blockDim.x)
        out[blockIdx.x * d + column] = taken[column];
}

extern "C" __global__ void take_rows_float32(const float* __restrict__ vectors, const long long* __restrict__ rows,
                                             long long d, float* __restrict__ out) {
    take_rows(vectors, rows, d, out);
}

extern "C" __global__ void take_rows_float64(const double* __restrict__ vectors, const long long* __restrict__ rows,
                                             long long d, double* __restrict__ out) {
    take_rows(vectors, rows, d, out);
}
