// Sparse vectors on a device: rows in CSR form, and the vectors of each term (see sparse_products.py for the CPU).
//
// Every kernel is correct for any number of threads, and its results do not depend on it.

// Adds the inner products of the rows of a (n, d) and the vectors of b (m, d), by term, to out (n, m): a block for each
// row of a. A vector has a term at most once, so the threads of a term add to different values, and the products of a
// value are added by rising term.
template <class T>
__device__ void add_products(const int* offsets, const int* terms, const T* values, const int* starts,
                             const int* vectors, const T* weights, long long m, T* out) {
    T* row = out + blockIdx.x * m;
    for (int entry = offsets[blockIdx.x]; entry < offsets[blockIdx.x + 1]; entry++) {
        int term = terms[entry], end = starts[term + 1];
        T value = values[entry];
        for (int posting = starts[term] + int(threadIdx.x); posting < end; posting += blockDim.x)
            row[vectors[posting]] += value * weights[posting];
        __syncthreads();
    }
}

extern "C" __global__ void add_products_float32(const int* __restrict__ offsets, const int* __restrict__ terms,
                                                const float* __restrict__ values, const int* __restrict__ starts,
                                                const int* __restrict__ vectors, const float* __restrict__ weights,
                                                long long m, float* out) {
    add_products(offsets, terms, values, starts, vectors, weights, m, out);
}

extern "C" __global__ void add_products_float64(const int* __restrict__ offsets, const int* __restrict__ terms,
                                                const double* __restrict__ values, const int* __restrict__ starts,
                                                const int* __restrict__ vectors, const double* __restrict__ weights,
                                                long long m, double* out) {
    add_products(offsets, terms, values, starts, vectors, weights, m, out);
}

// Counts the vectors of each term.
extern "C" __global__ void count_terms(const int* __restrict__ terms, long long n, int* counts) {
    for (long long entry = blockIdx.x * (long long)blockDim.x + threadIdx.x; entry < n;
         entry += gridDim.x * (long long)blockDim.x)
        atomicAdd(&counts[terms[entry]], 1);
}

// Lists the vectors and weights of each term: a block for each vector. `next` begins as the first posting of each term.
// The order within a term varies, and no result depends on it.
template <class T>
__device__ void list_terms(const int* offsets, const int* terms, const T* values, int* next, int* vectors, T* weights) {
    int end = offsets[blockIdx.x + 1];
    for (int entry = offsets[blockIdx.x] + int(threadIdx.x); entry < end; entry += blockDim.x) {
        int posting = atomicAdd(&next[terms[entry]], 1);
        vectors[posting] = blockIdx.x;
        weights[posting] = values[entry];
    }
}

extern "C" __global__ void list_terms_float32(const int* __restrict__ offsets, const int* __restrict__ terms,
                                              const float* __restrict__ values, int* next, int* vectors,
                                              float* weights) {
    list_terms(offsets, terms, values, next, vectors, weights);
}

extern "C" __global__ void list_terms_float64(const int* __restrict__ offsets, const int* __restrict__ terms,
                                              const double* __restrict__ values, int* next, int* vectors,
                                              double* weights) {
    list_terms(offsets, terms, values, next, vectors, weights);
}

// Copies some rows: a block for each of them. `taken` (n + 1,) are the offsets of the new matrix.
template <class T>
__device__ void take_rows(const int* rows, const int* offsets, const int* terms, const T* values, const int* taken,
                          int* new_terms, T* new_values) {
    int first = offsets[rows[blockIdx.x]], start = taken[blockIdx.x], length = taken[blockIdx.x + 1] - start;
    for (int entry = threadIdx.x; entry < length; entry += blockDim.x) {
        new_terms[start + entry] = terms[first + entry];
        new_values[start + entry] = values[first + entry];
    }
}

extern "C" __global__ void take_rows_float32(const int* __restrict__ rows, const int* __restrict__ offsets,
                                             const int* __restrict__ terms, const float* __restrict__ values,
                                             const int* __restrict__ taken, int* new_terms, float* new_values) {
    take_rows(rows, offsets, terms, values, taken, new_terms, new_values);
}

extern "C" __global__ void take_rows_float64(const int* __restrict__ rows, const int* __restrict__ offsets,
                                             const int* __restrict__ terms, const double* __restrict__ values,
                                             const int* __restrict__ taken, int* new_terms, double* new_values) {
    take_rows(rows, offsets, terms, values, taken, new_terms, new_values);
}

// Sums the squares of the values of each row in double precision: a thread for each row.
template <class T> __device__ void square_rows(const int* offsets, const T* values, int n, T* out) {
    for (long long row = blockIdx.x * (long long)blockDim.x + threadIdx.x; row < n;
         row += gridDim.x * (long long)blockDim.x) {
        double sum = 0;
        for (int entry = offsets[row]; entry < offsets[row + 1]; entry++)
            sum += double(values[entry]) * double(values[entry]);
        out[row] = T(sum);
    }
}

extern "C" __global__ void square_rows_float32(const int* __restrict__ offsets, const float* __restrict__ values, int n,
                                               float* out) {
    square_rows(offsets, values, n, out);
}

extern "C" __global__ void square_rows_float64(const int* __restrict__ offsets, const double* __restrict__ values,
                                               int n, double* out) {
    square_rows(offsets, values, n, out);
}

// Sums the squared differences of the rows left[k] of a and right[k] of b: a thread for each pair. The terms of a row
// rise. Each sum replaces the value of the pair in out (n, m).
extern "C" __global__ void square_differences(const int* __restrict__ left, const int* __restrict__ right, long long n,
                                              const int* __restrict__ offsets_a, const int* __restrict__ terms_a,
                                              const double* __restrict__ values_a, const int* __restrict__ offsets_b,
                                              const int* __restrict__ terms_b, const double* __restrict__ values_b,
                                              long long m, double* out) {
    for (long long pair = blockIdx.x * (long long)blockDim.x + threadIdx.x; pair < n;
         pair += gridDim.x * (long long)blockDim.x) {
        int a = offsets_a[left[pair]], end_a = offsets_a[left[pair] + 1];
        int b = offsets_b[right[pair]], end_b = offsets_b[right[pair] + 1];
        double sum = 0;
        while (a < end_a || b < end_b) {
            bool of_a = a < end_a && (b == end_b || terms_a[a] <= terms_b[b]);
            bool of_b = b < end_b && (a == end_a || terms_b[b] <= terms_a[a]);
            double difference = (of_a ? values_a[a] : 0.0) - (of_b ? values_b[b] : 0.0);
            sum += difference * difference;
            a += of_a, b += of_b;
        }
        out[left[pair] * m + right[pair]] = sum;
    }
}
