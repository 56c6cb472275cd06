// Kernel values on a device: tiles of the product kernel from inner products, and sums over support rows (kernel.py,
// expansion.py). Every kernel is correct for any number of threads of a block.

// exp(2 a·b - |a|² - |b|²). CUDA's expf is off by at most 2 units in the last place, 2.4e-7 of the value; the rounding
// of the argument to float32 adds up to 2^-22 of the squared lengths, as on the CPU.
__device__ float kernel_value(float product, float norm_a, float norm_b) {
    float exponent = 2.0f * product - norm_a - norm_b;
    return expf(exponent < 0 ? exponent : 0.0f); // rounding can make a squared distance negative
}

// Replaces the products of a tile (n, m) by kernel values: `parts` blocks for each row.
extern "C" __global__ void exp_tile(float* tile, const float* __restrict__ norms_a, const float* __restrict__ norms_b,
                                    long long m, int parts) {
    long long row = blockIdx.x / parts;
    for (long long column = blockIdx.x % parts * (long long)blockDim.x + threadIdx.x; column < m;
         column += parts * (long long)blockDim.x)
        tile[row * m + column] = kernel_value(tile[row * m + column], norms_a[row], norms_b[column]);
}

// Adds the squared distances of rows a (n, width) and b (m, width) to out (n, m): a warp for one row of b and up to
// ROWS_PER_WARP rows of a.
constexpr int ROWS_PER_WARP = 4;
extern "C" __global__ void add_squared_differences(const double* __restrict__ a, const double* __restrict__ b, int n,
                                                   long long m, int width, double* out) {
    int lanes = lanes_of_warp(), lane = threadIdx.x % lanes, warps = blockDim.x / lanes;
    long long across = (m + warps - 1) / warps, step = gridDim.x, tiles = (n + ROWS_PER_WARP - 1) / ROWS_PER_WARP;
    for (long long tile = blockIdx.x; tile < tiles * across; tile += step) {
        long long column = tile % across * warps + threadIdx.x / lanes;
        int top = int(tile / across) * ROWS_PER_WARP;
        if (column >= m) // of the whole warp
            continue;
        double sums[ROWS_PER_WARP] = {};
        for (int c = lane; c < width; c += lanes) {
            double other = b[column * width + c];
#pragma unroll
            for (int r = 0; r < ROWS_PER_WARP; r++) {
                double difference = a[min(top + r, n - 1) * (long long)width + c] - other;
                sums[r] += difference * difference;
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS_PER_WARP; r++) {
            double sum = sum_of_warp(sums[r]);
            if (!lane && top + r < n)
                out[(top + r) * m + column] += sum;
        }
    }
}

// Replaces values by exp(-value).
extern "C" __global__ void exp_of_negative(double* values, long long n) {
    for (long long k = blockIdx.x * (long long)blockDim.x + threadIdx.x; k < n; k += gridDim.x * (long long)blockDim.x)
        values[k] = exp(-values[k]);
}

// Writes a tile (n, m) of products as kernel values to the symmetric matrix out (size, size), whose first row and first
// column are given, and mirrors it. A block for 32 × 32 values, which it transposes in shared memory. A tile on the
// diagonal is written from its lower half, with 1 on the diagonal.
extern "C" __global__ void write_gram(const float* __restrict__ tile, const float* __restrict__ norms_a,
                                      const float* __restrict__ norms_b, int n, int m, long long first_row,
                                      long long first_column, long long size, float* out) {
    extern __shared__ unsigned char dynamic_shared[];
    float* values = (float*)dynamic_shared; // 32 rows of 33 values, so that the threads use different banks
    int across = (m + 31) / 32, top = int(blockIdx.x) / across * 32, left = int(blockIdx.x) % across * 32;
    bool on_diagonal = first_row == first_column;
    if (on_diagonal && left > top)
        return;
    for (int k = threadIdx.x; k < 1024; k += blockDim.x) {
        int i = top + k / 32, j = left + k % 32;
        if (i >= n || j >= m || (on_diagonal && j > i))
            continue;
        float value = on_diagonal && i == j ? 1.0f : kernel_value(tile[i * (long long)m + j], norms_a[i], norms_b[j]);
        values[k / 32 * 33 + k % 32] = value;
        out[(first_row + i) * size + first_column + j] = value;
    }
    __syncthreads();
    for (int k = threadIdx.x; k < 1024; k += blockDim.x) {
        int i = top + k % 32, j = left + k / 32;
        if (i < n && j < m && !(on_diagonal && j >= i))
            out[(first_column + j) * size + first_row + i] = values[k % 32 * 33 + k / 32];
    }
}

// Gathers Kq[query_row, query] · Kp[passage_row, passage] into out (rows, n): `parts` blocks for each row.
template <class T>
__device__ void gather_products(const T* kq, const T* kp, const int* query_rows, const int* passage_rows,
                                const int* query, const int* passage, long long n_queries, long long n_passages,
                                long long n, int parts, T* out) {
    long long row = blockIdx.x / parts;
    const T* of_query = kq + query_rows[row] * n_queries;
    const T* of_passage = kp + passage_rows[row] * n_passages;
    for (long long column = blockIdx.x % parts * (long long)blockDim.x + threadIdx.x; column < n;
         column += parts * (long long)blockDim.x)
        out[row * n + column] = of_query[query[column]] * of_passage[passage[column]];
}

extern "C" __global__ void gather_products_float32(const float* __restrict__ kq, const float* __restrict__ kp,
                                                   const int* __restrict__ query_rows,
                                                   const int* __restrict__ passage_rows, const int* __restrict__ query,
                                                   const int* __restrict__ passage, long long n_queries,
                                                   long long n_passages, long long n, int parts, float* out) {
    gather_products(kq, kp, query_rows, passage_rows, query, passage, n_queries, n_passages, n, parts, out);
}

extern "C" __global__ void gather_products_float64(const double* __restrict__ kq, const double* __restrict__ kp,
                                                   const int* __restrict__ query_rows,
                                                   const int* __restrict__ passage_rows, const int* __restrict__ query,
                                                   const int* __restrict__ passage, long long n_queries,
                                                   long long n_passages, long long n, int parts, double* out) {
    gather_products(kq, kp, query_rows, passage_rows, query, passage, n_queries, n_passages, n, parts, out);
}

// Computes W of some queries, out (m, width): a block for each query. Column c of the terms sums coef · Kq(i, query) over
// the support rows starts[c]:starts[c + 1], in double precision, into the column targets[c]; other columns are not
// written. With n_bags > 0, each row is also multiplied by the weight of its bag for the query, of weights (m, n_bags).
template <class T>
__device__ void sum_weights(const T* kq, long long n_support, const int* query, const double* coef, const int* bag,
                            const double* weights, int n_bags, const int* starts, const int* targets, int n_columns,
                            long long width, T* out) {
    const T* kernel = kq + blockIdx.x * n_support;
    const double* of_query = weights + blockIdx.x * (long long)n_bags;
    for (int column = threadIdx.x; column < n_columns; column += blockDim.x) {
        double sum = 0;
        for (int row = starts[column]; row < starts[column + 1]; row++)
            sum += coef[row] * (n_bags ? of_query[bag[row]] : 1.0) * double(kernel[query[row]]);
        out[blockIdx.x * width + targets[column]] = T(sum);
    }
}

extern "C" __global__ void sum_weights_float32(const float* __restrict__ kq, long long n_support,
                                               const int* __restrict__ query, const double* __restrict__ coef,
                                               const int* __restrict__ bag, const double* __restrict__ weights,
                                               int n_bags, const int* __restrict__ starts,
                                               const int* __restrict__ targets, int n_columns, long long width,
                                               float* out) {
    sum_weights(kq, n_support, query, coef, bag, weights, n_bags, starts, targets, n_columns, width, out);
}

extern "C" __global__ void sum_weights_float64(const double* __restrict__ kq, long long n_support,
                                               const int* __restrict__ query, const double* __restrict__ coef,
                                               const int* __restrict__ bag, const double* __restrict__ weights,
                                               int n_bags, const int* __restrict__ starts,
                                               const int* __restrict__ targets, int n_columns, long long width,
                                               double* out) {
    sum_weights(kq, n_support, query, coef, bag, weights, n_bags, starts, targets, n_columns, width, out);
}

// Adds ⟨Kp(passage, columns), W(query)⟩ of each pair to out (n,), in double precision: a block for each pair. Kp is
// (·, width) and W (·, n_columns). Shared memory: a double for each thread.
template <class T>
__device__ void add_pair_sums(const T* kp, long long width, const int* columns, int n_columns, const T* w,
                              const int* passage, const int* query, double* out, double* sums) {
    const T* of_passage = kp + passage[blockIdx.x] * width;
    const T* of_query = w + query[blockIdx.x] * (long long)n_columns;
    double sum = 0;
    for (int column = threadIdx.x; column < n_columns; column += blockDim.x)
        sum += double(of_passage[columns[column]]) * double(of_query[column]);
    sum = sum_of_block(sum, sums);
    if (!threadIdx.x)
        out[blockIdx.x] += sum;
}

extern "C" __global__ void add_pair_sums_float32(const float* __restrict__ kp, long long width,
                                                 const int* __restrict__ columns, int n_columns,
                                                 const float* __restrict__ w, const int* __restrict__ passage,
                                                 const int* __restrict__ query, double* out) {
    extern __shared__ unsigned char dynamic_shared[];
    add_pair_sums(kp, width, columns, n_columns, w, passage, query, out, (double*)dynamic_shared);
}

extern "C" __global__ void add_pair_sums_float64(const double* __restrict__ kp, long long width,
                                                 const int* __restrict__ columns, int n_columns,
                                                 const double* __restrict__ w, const int* __restrict__ passage,
                                                 const int* __restrict__ query, double* out) {
    extern __shared__ unsigned char dynamic_shared[];
    add_pair_sums(kp, width, columns, n_columns, w, passage, query, out, (double*)dynamic_shared);
}
